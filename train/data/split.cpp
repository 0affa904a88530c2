#include <shardgrad/train/data/split.h>

#include <shardgrad/core/error.h>
#include <shardgrad/core/rng.h>

namespace shardgrad::data {

bool is_test_row(uint64_t seed, int64_t row, double share) {
  return double(unit_float(philox(seed, stream_of("test rows"), uint64_t(row))[0])) < share;
}

void check_test_share(double share) {
  SG_CHECK(share > 0 && share < 1, "test_share is ", share, "; it must be above 0 and below 1");
}

void check_parts(const std::string& path, int64_t train, int64_t test) {
  SG_CHECK(train > 0 && test > 0, "'", path, "': of its ", train + test, " rows ", test, " are test rows and ", train,
           " are training rows; both need some: set another test_share or seed");
}

}  // namespace shardgrad::data
