// Errors of the library as exceptions of Python, with the same sentences, which tell to call Python's functions:
//
//     shardgrad.Error (RuntimeError)
//       ├─ InputError (ValueError)     refused input: shapes, dtypes, options, files
//       ├─ MissingError                a device or library that is not there
//       ├─ OutOfMemoryError (MemoryError)
//       └─ RankFailedError             another rank failed; the sentence names it
//
// An exception of Python's that passes through C++ on its way, such as one of a forward that backward runs again, comes
// out as it was.

#include <shardgrad/python/bind.h>

#include <cstring>
#include <stdexcept>

#include <shardgrad/core/allocator.h>

namespace shardgrad::python {
namespace {

PyObject* make_error(nb::module_& m, const char* name, const char* doc, nb::handle bases) {
  std::string full = std::string("shardgrad.") + name;
  nb::object type = nb::steal(PyErr_NewExceptionWithDoc(full.c_str(), doc, bases.ptr(), nullptr));
  if (!type.is_valid()) nb::raise_python_error();
  m.attr(name) = type;
  return type.release().ptr();  // for as long as the process lives
}

struct Types {
  PyObject *error, *input, *missing, *memory, *rank_failed;
};
Types types;  // the interpreter's, of which a process has one

PyObject* type_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::input:
      return types.input;
    case ErrorKind::missing:
      return types.missing;
    case ErrorKind::rank_failed:
      return types.rank_failed;
    case ErrorKind::internal:
      break;
  }
  return types.error;
}

// What a sentence tells to do has other names here.
constexpr std::pair<const char*, const char*> kWords[] = {
    {"a scope of fsdp::SummonFullParams", "a `with sg.fsdp.summon_full_params(sharded):`"},
    {"a scope of SummonFullParams", "a `with sg.fsdp.summon_full_params(sharded):`"},
    {"the scope of fsdp::NoSync", "`with sg.fsdp.no_sync(sharded):`"},
    {"fsdp::clip_grad_norm(*sharded, max_norm), read the parts with FlatParam::grad()",
     "sharded.clip_grad_norm_(max_norm); what this rank alone has computed is seen by p.register_hook(f)"},
    {"fsdp::clip_grad_norm with what fully_shard returned", "sharded.clip_grad_norm_ of what fully_shard returned"},
    {"fsdp::grad_norm with what fully_shard returned", "sharded.grad_norm of what fully_shard returned"},
    {"optim::clip_grad_norm:", "optim.clip_grad_norm_:"},
    {"optim::grad_norm:", "optim.grad_norm:"},
    {"GradScaler: unscale()", "GradScaler: unscale_()"},
    {"Config::param_dtype", "param_dtype=…"},
    {"fsdp::sharded_grad_scaler(*sharded)", "optim.GradScaler(ranks=sharded)"},
    {"fsdp::sharded_grad_scaler(mesh.world())", "optim.GradScaler(ranks=group)"},
    {" (see data::Batch::global_count)", ""},
};

std::string in_words_of_python(std::string text) {
  for (auto [theirs, ours] : kWords)
    for (size_t at; (at = text.find(theirs)) != std::string::npos;) text.replace(at, strlen(theirs), ours);
  return text;
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const OutOfMemory& error) {
    PyErr_SetString(types.memory, in_words_of_python(error.what()).c_str());
  } catch (const Error& error) {
    PyErr_SetString(type_of(error.kind()), in_words_of_python(error.what()).c_str());
  }
}

}  // namespace

std::exception_ptr failure_of(nb::handle exception) {
  auto is = [&](PyObject* type) { return PyObject_IsInstance(exception.ptr(), type) == 1; };
  std::string text = nb::str(exception).c_str();
  if (is(types.memory)) return std::make_exception_ptr(OutOfMemory(text));
  for (ErrorKind kind : {ErrorKind::input, ErrorKind::missing, ErrorKind::rank_failed, ErrorKind::internal})
    if (is(type_of(kind))) return std::make_exception_ptr(Error(kind, text));
  std::string name = nb::cast<std::string>(exception.type().attr("__name__"));
  return std::make_exception_ptr(std::runtime_error(text.empty() ? name : name + ": " + text));
}

void bind_errors(nb::module_& m) {
  types.error = make_error(m, "Error", "What the library throws. Its own bugs are of this type itself.",
                           nb::handle(PyExc_RuntimeError));
  auto with = [&](PyObject* other) { return nb::make_tuple(nb::handle(types.error), nb::handle(other)); };
  types.input = make_error(m, "InputError", "Refused input: shapes, dtypes, options, files.", with(PyExc_ValueError));
  types.missing = make_error(m, "MissingError", "A device or library that is not there.", nb::handle(types.error));
  types.memory = make_error(m, "OutOfMemoryError", "A device or the host has no memory left.", with(PyExc_MemoryError));
  types.rank_failed =
      make_error(m, "RankFailedError", "Another rank has failed; the message names it.", nb::handle(types.error));
  nb::register_exception_translator(translate);
}

}  // namespace shardgrad::python
