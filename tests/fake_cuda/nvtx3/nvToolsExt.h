#pragma once
int nvtxRangePushA(const char* name);
int nvtxRangePop();
