// The extension shardgrad._core. What of it users see under which name is said in shardgrad/*.py.

#include <shardgrad/python/bind.h>
#include <shardgrad/train/build_info.h>

NB_MODULE(_core, m) {
  using namespace shardgrad::python;
  m.doc() = "Tensors, autograd and sharded training in C++; see the package shardgrad.";
  // At the end of the process the graph and its modules go in any order; what is left then is the system's.
  nb::set_leak_warnings(false);
  m.attr("__version__") = shardgrad::train::build_info().version;
  bind_errors(m);
  TensorClass tensor = bind_tensor(m);
  bind_creation(m);
  bind_exchange(m, tensor);
  bind_copies(m, tensor);
  bind_functions(m, tensor);
  bind_operators(tensor);
  bind_writes(tensor);
  bind_layout(m, tensor);
  bind_index(m, tensor);
  bind_reductions(m, tensor);
  bind_selections(m, tensor);
  bind_composites(m, tensor);
  bind_layers(m, tensor);
  bind_losses(m);
  bind_autograd(m);
  bind_watch(m);
  bind_dist(m);
  nb::module_ nn = m.def_submodule("_nn");
  bind_modules(nn);
  bind_init(nn);
  bind_nn(nn);
  bind_loss_modules(nn);
  bind_optim(m);
  bind_fsdp(m);
  bind_files(m);
}
