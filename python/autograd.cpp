// Gradients: what begins a backward pass, scopes of a thread, operations written in Python, and recompute.

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>

#include <shardgrad/python/call.h>

namespace shardgrad::python {

// --- recompute ------------------------------------------------------------------------------------------------------

nb::object checkpointed(const RecomputeOptions& options, nb::object function, nb::object arguments,
                        std::function<void()> check) {
  enter_context();
  if (!grad_enabled()) return call_packed(function, arguments);
  std::vector<Tensor> tensors = tensors_in_object(arguments);
  // What the graph keeps has empty tensors in their places: the region keeps those that it is given.
  nb::object without = copy_with_tensors(arguments, std::vector<Tensor>(tensors.size(), empty({0})));
  auto again = [held = Held(function), kept = Held(without), check](const std::vector<Tensor>& inputs) {
    nb::gil_scoped_acquire gil;
    if (check) check();
    call_packed(held.get(), copy_with_tensors(kept.get(), inputs));
  };
  Ref<Region> region = make_ref<Region>(options, tensors, std::move(again));
  Region::Scope scope(*region);
  return call_packed(function, arguments);
}

void check_no_double_backward(const char* call, bool create_graph) {
  SG_CHECK(!create_graph, call, ": create_graph=True is not possible. Gradients themselves are not recorded: double ",
           "backward is not supported");
}

namespace {

// --- operations written in Python -----------------------------------------------------------------------------------

class PythonFunction;

// `ctx` of forward and backward. Other attributes are its user's.
struct FunctionContext {
  std::vector<Tensor> to_save;
  std::vector<bool> needs_input_grad;
  PythonFunction* node = nullptr;
  bool recorded = false;  // by a node, which may be gone
};

class PythonFunction final : public Node {
 public:
  ~PythonFunction() override {
    if (context) context->node = nullptr;
  }
  const char* name() const override { return called.c_str(); }
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    NoGrad no_grad;
    nb::gil_scoped_acquire gil;
    nb::list arguments;
    arguments.append(object.get());
    for (size_t i = 0; i < dy.size(); ++i)
      arguments.append(dy[i].defined() ? dy[i] : zeros(outputs[i].shape, {outputs[i].dtype, outputs[i].device}));
    nb::object given = type.get().attr("backward")(*nb::tuple(arguments));
    nb::tuple gradients = nb::isinstance<nb::tuple>(given) ? nb::borrow<nb::tuple>(given) : nb::make_tuple(given);
    bool rest_is_none = true;  // beyond the arguments, as of a function of several signatures
    for (size_t i = slots.size(); i < gradients.size(); ++i) rest_is_none &= gradients[i].is_none();
    SG_CHECK(gradients.size() >= slots.size() && rest_is_none, called, ": backward gave ", gradients.size(),
             " gradients where forward ", "has ", slots.size(),
             " arguments; give one for each, None for what is no tensor");
    for (size_t i = 0; i < slots.size(); ++i)
      if (slots[i] >= 0) write(i, dx[size_t(slots[i])], gradients[i], inputs[size_t(slots[i])]);
  }
  size_t saved_count = 0;
  using Node::save;
  using Node::save_output;
  using Node::saved;

  std::string called;
  Held type, object;
  FunctionContext* context = nullptr;
  std::vector<OutputMeta> inputs, outputs;
  std::vector<int> slots;  // of each argument: which input it is, or -1

 private:
  void write(size_t i, GradSlot& slot, nb::handle gradient, const OutputMeta& like) const {
    if (!slot.wanted()) return;
    Tensor given;
    if (gradient.is_none())
      given = zeros(like.shape, {like.dtype, like.device});
    else
      SG_CHECK(nb::try_cast(gradient, given), called, ": backward gave as gradient ", i, " no tensor but ",
               nb::repr(gradient).c_str());
    slot.alias(given);
  }
};

OutputMeta meta_of(const Tensor& x) { return {x.shape(), x.dtype(), x.device()}; }

void keep_saved(PythonFunction& node, FunctionContext& context, std::span<const Tensor> results,
                std::span<const Tensor> outputs) {
  for (const Tensor& tensor : context.to_save) {
    auto same = [&](const Tensor& result) { return tensor.defined() && result.same_as(tensor); };
    auto found = std::ranges::find_if(results, same);
    if (found == results.end())
      node.save(tensor);
    else
      node.save_output(outputs[size_t(found - results.begin())]);
  }
  node.saved_count = context.to_save.size();
  context.to_save.clear();
}

nb::object apply(nb::object type, const nb::args& args) {
  enter_context();
  nb::object object = nb::cast(FunctionContext());
  auto& context = nb::cast<FunctionContext&>(object);
  std::vector<Tensor> inputs;
  std::vector<int> slots;
  for (nb::handle argument : args) {
    Tensor tensor;
    bool is_tensor = nb::try_cast(argument, tensor);
    context.needs_input_grad.push_back(is_tensor && tensor.requires_grad());
    slots.push_back(is_tensor ? int(inputs.size()) : -1);
    if (is_tensor) inputs.push_back(tensor);
  }
  nb::object result;
  {
    NoGrad no_grad;
    result = type.attr("forward")(object, *args);
  }
  std::vector<Tensor> results = tensors_in_object(result), outputs;
  for (const Tensor& tensor : results) outputs.push_back(tensor.detach());
  if (auto* node = record_all<PythonFunction>(outputs, inputs)) {
    node->called = nb::cast<std::string>(type.attr("__name__"));
    node->type = Held(type), node->object = Held(object);
    node->slots = slots;
    for (const Tensor& x : inputs) node->inputs.push_back(meta_of(x));
    for (const Tensor& y : outputs) node->outputs.push_back(meta_of(y));
    keep_saved(*node, context, results, outputs);
    node->context = &context, context.node = node, context.recorded = true;
  }
  return with_tensors(result, outputs);
}

nb::tuple saved_tensors(const FunctionContext& context) {
  SG_CHECK(context.node || !context.recorded, "what a Function saved for backward has been freed with its graph");
  nb::list saved;
  auto add = [&](Tensor tensor) { saved.append(nb::cast(maybe(std::move(tensor)))); };
  for (const Tensor& tensor : context.to_save) add(tensor);
  try {
    for (size_t i = 0; context.node && i < context.node->saved_count; ++i) add(context.node->saved(i));
  } catch (const std::out_of_range&) {
    fail(context.node->called, ": what it saved for backward has been freed; pass retain_graph=True to go through the ",
         "graph again");
  }
  return nb::tuple(saved);
}

void bind_function(nb::module_& m) {
  nb::class_<FunctionContext>(m, "FunctionContext", nb::dynamic_attr(),
                              "What forward gives to backward of a Function; attributes of any name can be set.")
      .def(
          "save_for_backward",
          [](FunctionContext& context, const nb::args& tensors) {
            context.to_save.clear();
            for (nb::handle each : tensors)
              context.to_save.push_back(
                  each.is_none() ? Tensor() : given_by<Tensor>("save_for_backward", each, "a tensor or None"));
          },
          "tensors"_a, "Keeps tensors for backward, which finds them in saved_tensors.")
      .def_prop_ro("saved_tensors", saved_tensors, "What save_for_backward was given.")
      .def_prop_ro(
          "needs_input_grad", [](const FunctionContext& c) { return nb::tuple(nb::cast(c.needs_input_grad)); },
          "Of each argument of forward, whether backward is asked for its gradient.");
  m.def("_apply_function", apply, "type"_a, "args"_a);
}

// --- scopes of a thread ---

// Entered and left as one of Python's scopes. A setting is a thread's: left on another one, as by a generator that is
// collected there, it stays as it was.
template <class T> class Scope {
 public:
  template <class... Args> explicit Scope(const Args&... args) : scope_(std::make_unique<T>(args...)) {}
  Scope(Scope&&) = default;
  ~Scope() { close(); }
  void close() {
    if (PyThread_get_thread_ident() != thread_) static_cast<void>(scope_.release());
    scope_.reset();
  }

 private:
  std::unique_ptr<T> scope_;
  unsigned long thread_ = PyThread_get_thread_ident();
};

template <class T, class Make> void bind_scope(nb::module_& m, const char* name, Make make) {
  nb::class_<Scope<T>>(m, name).def("close", &Scope<T>::close);
  m.def((std::string(name) + "_").c_str(), make);
}

void bind_scopes(nb::module_& m) {
  nb::module_ scopes = m.def_submodule("_scopes");
  auto enter = [] { enter_context(); };
  bind_scope<GradMode>(scopes, "grad_mode", [enter](bool on) {
    enter();
    return Scope<GradMode>(on);
  });
  bind_scope<Autocast>(scopes, "autocast", [enter](std::optional<DType> dtype) {
    enter();
    return Scope<Autocast>(dtype);
  });
  bind_scope<DetectAnomaly>(scopes, "detect_anomaly", [enter](bool on) {
    enter();
    return Scope<DetectAnomaly>(on);
  });
  m.def("is_grad_enabled", grad_enabled, Enters(), "Whether operations of this thread are recorded for backward.");
}

}  // namespace

void bind_autograd(nb::module_& m) {
  bind_function(m);
  bind_scopes(m);
  m.def("_checkpoint", [](nb::object function, nb::object args, nb::object kwargs, bool offload_inputs) {
    return checkpointed({.offload_inputs = offload_inputs}, std::move(function), nb::make_tuple(args, kwargs));
  });
  m.def(
      "backward",
      [](const std::vector<Tensor>& tensors, const std::vector<std::optional<Tensor>>& gradients, bool retain_graph,
         bool create_graph) {
        check_no_double_backward("backward", create_graph);
        std::vector<Tensor> grads;
        for (const auto& each : gradients) grads.push_back(or_undefined(each));
        backward(tensors, grads, retain_graph);
      },
      "tensors"_a, "gradients"_a = std::vector<std::optional<Tensor>>(), "retain_graph"_a = false,
      "create_graph"_a = false, Waits(), "Backward from several tensors at once.");
  m.def(
      "_grad",
      [](const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
         const std::vector<std::optional<Tensor>>& gradients, bool retain_graph, bool create_graph) {
        check_no_double_backward("grad", create_graph);
        std::vector<Tensor> grads;
        for (const auto& each : gradients) grads.push_back(or_undefined(each));
        std::vector<std::optional<Tensor>> found;
        for (Tensor& each : grad(outputs, inputs, grads, retain_graph)) found.push_back(maybe(each));
        return found;
      },
      Waits());
}

}  // namespace shardgrad::python
