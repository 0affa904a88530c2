// How the gradients of several backward passes are added: NoSync, PairwiseSum.

#include <shardgrad/autograd/node.h>
#include <shardgrad/fsdp/fully_shard.h>

namespace shardgrad::fsdp {

NoSync::NoSync(Sharded& sharded) : sharded_(sharded), outer_(sharded.schedule_.sync()) {
  SG_CHECK(!in_backward(), "NoSync: a backward pass is running; open the scope around whole passes");
  SG_CHECK(!sharded.above_, "NoSync: this model is a part of one that was sharded after it, whose backward passes are ",
           "its own, too; give that one's handle");
  sharded.schedule_.set_sync(false);
}

NoSync::~NoSync() { sharded_.schedule_.set_sync(outer_); }

PairwiseSum::PairwiseSum(Sharded& sharded) : sharded_(sharded) {
  SG_CHECK(!in_backward(), "PairwiseSum: a backward pass is running; open the scope around whole passes");
  SG_CHECK(!sharded.above_,
           "PairwiseSum: this model is a part of one that was sharded after it, whose backward passes ",
           "are its own, too; give that one's handle");
  SG_CHECK(!sharded.schedule_.pass(), "PairwiseSum: another one of this model has not ended");
  sharded.schedule_.set_pass(0);
}

PairwiseSum::~PairwiseSum() {
  sharded_.schedule_.set_pass({});
  for (FlatParam* flat : sharded_.flats_)
    if ((passes_ > 0 && !finished_) || !flat->grads().passes_joined())
      flat->grads().tear("a PairwiseSum ended before finish() had added up its passes");
}

void PairwiseSum::begin_pass() {
  SG_CHECK(!finished_, "PairwiseSum: a pass begins after finish(); begin another sum");
  sharded_.schedule_.set_pass(passes_++);
}

void PairwiseSum::finish() {
  SG_CHECK(!in_backward(), "PairwiseSum: a backward pass is running; finish the sum after it");
  for (FlatParam* flat : sharded_.flats_) flat->grads().join_passes();
  finished_ = true;
}

}  // namespace shardgrad::fsdp
