// Tensors: shapes, views, broadcasting, matrix products, and who owns which byte.

#include <iostream>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/tutorials/rung.h>

#include YOURS  // solution.cpp, or your copy of exercise.cpp

void tensors(learn::Rung& rung) {
  // Everything belongs to a context: the default device, the random seed, the ledger of bytes.
  sg::Context context;

  // A tensor is a shape and an element type over contiguous, row-major memory.
  sg::Tensor a = sg::reshape(sg::arange(6, sg::DType::f32), {2, 3});
  std::cout << "a is " << describe(a) << ": " << to_string(a) << "\n";

  // Reshapes and slices of dimension 0 are views: they share the memory.
  int64_t before_view = context.ledger().current();
  sg::Tensor row = sg::slice(a, 0, 1, 2);
  row.data<float>()[0] = 30;
  rung.count("view_bytes", double(context.ledger().current() - before_view));
  std::cout << "a after writing through a view: " << to_string(a) << "\n";

  // Shapes that differ are broadcast as in NumPy: (2, 3) + (3) adds the vector to every row.
  sg::Tensor bias = sg::from_vector<float>({10, 20, 30}, {3});
  int64_t before_sum = context.ledger().current();
  sg::Tensor moved = a + bias;
  rung.count("sum_bytes", double(context.ledger().current() - before_sum));
  std::cout << "a + bias: " << to_string(moved) << "\n";

  // matmul takes transposed operands without a copy: (2, 3) x (2, 3)^T is (2, 2).
  int64_t before_gram = context.ledger().current();
  sg::Tensor gram = sg::matmul(a, a, false, true);
  rung.count("product_bytes", double(context.ledger().current() - before_gram));
  std::cout << "a x a^T: " << to_string(gram) << "\n";

  // Reductions run over everything or over one dimension.
  std::cout << "sum " << sg::sum(a).item() << ", column sums " << to_string(sg::sum(a, 0)) << "\n";

  // Errors name the operation, both shapes, and what to do.
  try {
    sg::matmul(a, a);
  } catch (const sg::Error& error) {
    std::cout << "refused: " << error.what() << "\n";
  }

  // The ledger knows the owner of every byte. One more tensor of 1000 floats is 4000 bytes.
  int64_t before = context.ledger().current();
  sg::Tensor big = sg::zeros({1000});
  std::cout << "1000 floats: " << context.ledger().current() - before << " bytes, as "
            << name_of(big.storage()->tag().category) << "\n";

  // Yours.
  std::vector<float> centre = centred(sg::reshape(sg::arange(6, sg::DType::f32), {2, 3})).to_vector<float>();
  rung.require(centre == std::vector<float>{-1, 0, 1, -1, 0, 1}, "centred: each row less its own mean is [-1, 0, 1]");
  rung.term("R", 2), rung.term("C", 3), rung.term("F", sizeof(float));
}

int main(int count, char** words) { return learn::run(count, words, tensors); }
