#include <shardgrad/autograd/spread.h>

#include <algorithm>
#include <iterator>

#include <shardgrad/core/context.h>

namespace shardgrad {

void compute_whole(std::span<const WholeTensor> tensors, WholeWork& work) {
  TagScope owner_of_all(Category::whole_tensor);
  std::vector<WholeTensors*> owners;  // in the order of their first tensors, which all ranks share
  for (const auto& [index, spread, cost] : tensors) {
    if (spread.ranks) {
      if (std::ranges::count(owners, spread.ranks) == 0) owners.push_back(spread.ranks);
      continue;
    }
    Tensor whole = work.part(index).to(spread.device);
    work.take(index, work.compute(index, std::move(whole)));
  }
  for (WholeTensors* owner : owners) {
    std::vector<WholeTensor> theirs;
    std::ranges::copy_if(tensors, std::back_inserter(theirs),
                         [&](const WholeTensor& tensor) { return tensor.spread.ranks == owner; });
    owner->compute(theirs, work);
  }
}

}  // namespace shardgrad
