#pragma once
int nvtxRangePushA(const char* name);
int nvtxRangePop();
using nvtxRangeId_t = unsigned long;
nvtxRangeId_t nvtxRangeStartA(const char* name);
void nvtxRangeEnd(nvtxRangeId_t range);
