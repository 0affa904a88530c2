// Loss scaling by hand: backward starts from a multiple of the loss, so that small gradients are numbers of f16, and
// the optimizer divides by it. A step in which a gradient overflowed is left out, by all ranks.

#include <cmath>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/optim/optimizer.h>

class Scaler {
 public:
  Scaler(sg::dist::ProcessGroup& world, double factor, int growth_interval)
      : world_(world), factor_(factor), growth_interval_(growth_interval) {}
  double factor() const { return factor_; }

  sg::Tensor scale(const sg::Tensor& loss) const {
    sg::Tensor scaled = loss;
    // TODO(you): what does backward start from?
    // end of TODO
    return scaled;
  }

  /// The optimizer's step, or none; and the factor of the next one. Returns whether there was a step.
  bool step(sg::optim::Optimizer& optimizer) {
    bool finite = true;  // of this rank's shards
    for (const sg::Tensor& gradient : optimizer.gradients())
      for (float g : gradient.to_vector<float>()) finite = finite && std::isfinite(g);
    // TODO(you): a rank sees its own shards only, and all must do the same. Let them add up who has seen an overflow.
    // end of TODO
    // TODO(you): optimizer.step(s) multiplies gradients by s. Which s?
    // end of TODO
    // TODO(you): an overflow halves the factor; growth_interval_ good steps in a row double it.
    // end of TODO
    return finite;
  }

 private:
  sg::dist::ProcessGroup& world_;
  double factor_;
  int growth_interval_, good_steps_ = 0;
};
