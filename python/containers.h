#pragma once
// Tensors inside tuples, lists and dicts of Python, however deep; everything else is passed over.

#include <map>

#include <shardgrad/python/bind.h>

namespace shardgrad::python {

std::vector<Tensor> tensors_in_object(nb::handle object);
/// The object with these tensors in the place of those that tensors_in_object found. It is the same object where the
/// tensors are; tuples, lists and dicts with others in them are copied, each as one of its class. Throws Error(input)
/// where the object has got more or fewer tensors since.
nb::object with_tensors(nb::handle object, std::span<const Tensor> tensors);
/// The same with all lists and dicts copied: what is written into one of them is not in the other.
nb::object copy_with_tensors(nb::handle object, std::span<const Tensor> tensors);

/// Other tensors in a call's arguments. Lists and dicts stay the caller's own, who sees what the call writes into them;
/// at the end the caller's tensors are back where they still have a place.
class Replacement {
 public:
  Replacement() = default;
  ~Replacement();
  Replacement(const Replacement&) = delete;
  /// The arguments with these tensors. Throws as with_tensors does.
  nb::object in(nb::handle arguments, std::span<const Tensor> tensors);

 private:
  void put_back(const nb::object& container) const;
  std::vector<nb::object> containers_;
  std::map<PyObject*, std::pair<nb::object, nb::object>> before_;  // by what is in a place: it, and what was there
};

}  // namespace shardgrad::python
