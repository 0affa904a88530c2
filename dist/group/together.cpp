#include <shardgrad/dist/group/together.h>

#include <algorithm>
#include <exception>
#include <new>

#include <shardgrad/core/allocator.h>
#include <shardgrad/core/context.h>

namespace shardgrad::dist {
namespace {

constexpr int64_t kOutOfMemory = 5;

// A number for each kind of error, 0 for none. An exception that is no Error is as refused input, for it is a user's.
int64_t kind_of(const std::exception_ptr& failure, std::string& message) {
  try {
    std::rethrow_exception(failure);
  } catch (const OutOfMemory& error) {
    message = error.what();
    return kOutOfMemory;
  } catch (const Error& error) {
    message = error.what();
    return int64_t(error.kind());
  } catch (const std::bad_alloc&) {
    message = "out of memory: the host has none left";
    return kOutOfMemory;
  } catch (const std::exception& error) {
    message = error.what();
  } catch (...) {
    message = "an exception that is no std::exception";
  }
  return int64_t(ErrorKind::input);
}

}  // namespace

std::string same_text(ProcessGroup& group, const Label& label, const std::string& text, int root) {
  TagScope owner(Category::other);
  TensorOptions here{DType::u8, kCpu};
  Tensor length = from_vector<int64_t>({int64_t(text.size())}, {1}, {DType::i64, kCpu});
  group.broadcast(length, root, label).host_wait();
  std::vector<uint8_t> bytes(text.begin(), text.end());
  bytes.resize(size_t(length.item()));
  Tensor all = from_vector(bytes, {int64_t(bytes.size())}, here);
  group.broadcast(all, root, label).host_wait();
  bytes = all.to_vector<uint8_t>();
  return {bytes.begin(), bytes.end()};
}

void together(ProcessGroup& group, const Label& label, const std::function<void()>& call, const std::string& after) {
  std::exception_ptr failure;
  std::string message;
  int64_t kind = 0;
  try {
    call();
  } catch (...) {
    failure = std::current_exception();
    kind = kind_of(failure, message);
  }
  std::vector<int64_t> kinds = group.share<int64_t>({kind}, label);
  auto first = std::ranges::find_if(kinds, [](int64_t each) { return each != 0; });
  if (first == kinds.end()) return;
  auto root = int(first - kinds.begin());
  std::string cause = same_text(group, label, message, root);
  if (failure) std::rethrow_exception(failure);
  if (*first == kOutOfMemory) throw OutOfMemory(concat("rank ", group.global_rank(root), ": ", cause, after));
  fail_as(ErrorKind(*first), "rank ", group.global_rank(root), ": ", cause, after);
}

}  // namespace shardgrad::dist
