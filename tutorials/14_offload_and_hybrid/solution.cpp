// Ranks as a table, by hand: a row shares one copy of the model, a column holds the same part of different copies.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/dist/group/process_group.h>

class Table {
 public:
  /// Rows of `size` ranks that follow each other.
  Table(sg::dist::ProcessGroup& world, int size) {
    int row = 0, column = 0;
    // TODO(you): where in the table is this rank?
    row = world.rank() / size;
    column = world.rank() % size;
    // end of TODO
    row_ = world.split(row, world.rank());  // the ranks that say the same number, in the order of their ranks
    column_ = world.split(column, world.rank());
  }
  /// Which part of the model this rank has.
  int part() const { return row_->rank(); }
  int copies() const { return column_->size(); }

  /// The whole of what each rank has a part of.
  void gather(const sg::Tensor& whole, const sg::Tensor& part) {
    // TODO(you): among whom?
    row_->all_gather(whole, part).host_wait();
    // end of TODO
  }
  /// This rank's part of the sum over all ranks.
  void reduce(const sg::Tensor& part, const sg::Tensor& gradient) {
    // TODO(you): two collectives, of which the second sends little.
    row_->reduce_scatter(part, gradient).host_wait();
    column_->all_reduce(part).host_wait();
    // end of TODO
  }

 private:
  std::unique_ptr<sg::dist::ProcessGroup> row_, column_;
};
