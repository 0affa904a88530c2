// Tensors: shapes, views, broadcasting, matrix products, and who owns which byte.

#include <iostream>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>

int main() {
  // Everything belongs to a context: the default device, the random seed, the ledger of bytes.
  sg::Context context;

  // A tensor is a shape and an element type over contiguous, row-major memory.
  sg::Tensor a = sg::reshape(sg::arange(6), {2, 3});
  std::cout << "a is " << a << ": " << to_string(a) << "\n";

  // Reshapes and slices of dimension 0 are views: they share the memory.
  sg::Tensor row = sg::slice(a, 0, 1, 2);
  row.data<float>()[0] = 30;
  std::cout << "a after writing through a view: " << to_string(a) << "\n";

  // Shapes that differ are broadcast as in NumPy: (2, 3) + (3) adds the vector to every row.
  sg::Tensor bias = sg::from_vector<float>({10, 20, 30}, {3});
  std::cout << "a + bias: " << to_string(a + bias) << "\n";

  // matmul takes transposed operands without a copy: (2, 3) x (2, 3)^T is (2, 2).
  sg::Tensor gram = sg::matmul(a, a, false, true);
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
}
