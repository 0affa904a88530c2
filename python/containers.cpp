#include <shardgrad/python/containers.h>

namespace shardgrad::python {
namespace {

bool is_tuple(nb::handle object) { return nb::isinstance<nb::tuple>(object); }
bool is_container(nb::handle object) {
  return is_tuple(object) || nb::isinstance<nb::list>(object) || nb::isinstance<nb::dict>(object);
}

// Of a container, by key or by place.
using Parts = std::vector<std::pair<nb::object, nb::object>>;
Parts parts_of(nb::handle container) {
  Parts parts;
  if (nb::isinstance<nb::dict>(container))
    for (auto [key, part] : nb::borrow<nb::dict>(container)) parts.emplace_back(nb::borrow(key), nb::borrow(part));
  else
    for (nb::handle part : container) parts.emplace_back(nb::int_(parts.size()), nb::borrow(part));
  return parts;
}

void add_tensors(nb::handle object, std::vector<Tensor>& found) {
  Deeper deeper;
  if (nb::isinstance<Tensor>(object))
    found.push_back(nb::cast<Tensor>(object));
  else if (is_container(object))
    for (auto& [key, part] : parts_of(object)) add_tensors(part, found);
}

// Between finding tensors and replacing them hooks run, and other threads.
void check_as_many(bool as_many) {
  SG_CHECK(as_many, "a list or dict of tensors, a call's argument or result, has got more or fewer of them during the ",
           "call; a hook gives other tensors as its result, and leaves such lists as they are");
}

// `others` takes the place of parts that are not the same any more: others(container, those).
template <class Others> nb::object replaced(nb::handle object, std::span<const Tensor>& rest, const Others& others) {
  Deeper deeper;
  if (nb::isinstance<Tensor>(object)) {
    check_as_many(!rest.empty());
    const Tensor& next = rest.front();
    rest = rest.subspan(1);
    return next.same_as(nb::cast<const Tensor&>(object)) ? nb::borrow(object) : nb::cast(next);
  }
  if (!is_container(object)) return nb::borrow(object);
  Parts changed;
  for (auto& [key, part] : parts_of(object))
    if (nb::object other = replaced(part, rest, others); !other.is(part)) changed.emplace_back(key, std::move(other));
  return others(object, changed);
}

template <class Others>
nb::object replaced_all(nb::handle object, std::span<const Tensor> tensors, const Others& others) {
  nb::object whole = replaced(object, tensors, others);
  check_as_many(tensors.empty());
  return whole;
}

nb::object tuple_with(nb::handle object, const Parts& changed) {
  nb::object parts = nb::list(object);
  for (auto& [place, part] : changed) parts[place] = part;
  nb::tuple whole(parts);
  if (PyTuple_CheckExact(object.ptr())) return whole;
  return nb::hasattr(object, "_fields") ? object.type()(*whole) : object.type()(whole);  // a named tuple's
}

nb::object copy_with(nb::handle container, const Parts& changed) {
  if (is_tuple(container)) return changed.empty() ? nb::borrow(container) : tuple_with(container, changed);
  nb::object copy = nb::module_::import_("copy").attr("copy")(container);
  for (auto& [key, part] : changed) copy[key] = part;
  return copy;
}

}  // namespace

std::vector<Tensor> tensors_in_object(nb::handle object) {
  std::vector<Tensor> found;
  add_tensors(object, found);
  return found;
}

nb::object with_tensors(nb::handle object, std::span<const Tensor> tensors) {
  return replaced_all(object, tensors, [](nb::handle container, const Parts& changed) {
    return changed.empty() ? nb::borrow(container) : copy_with(container, changed);
  });
}

nb::object copy_with_tensors(nb::handle object, std::span<const Tensor> tensors) {
  return replaced_all(object, tensors, copy_with);
}

nb::object Replacement::in(nb::handle arguments, std::span<const Tensor> tensors) {
  return replaced_all(arguments, tensors, [&](nb::handle object, const Parts& changed) {
    if (is_tuple(object)) return copy_with(object, changed);
    nb::object container = nb::borrow(object);
    if (!changed.empty()) containers_.push_back(container);
    for (auto& [key, part] : changed) {
      before_[part.ptr()] = {part, container[key]};
      container[key] = part;
    }
    return container;
  });
}

void Replacement::put_back(const nb::object& container) const {
  for (auto& [key, part] : parts_of(container)) {
    nb::handle before;
    // A container that is two arguments has had its parts replaced twice.
    for (auto found = before_.find(part.ptr()); found != before_.end(); found = before_.find(before.ptr()))
      before = found->second.second;
    if (before.is_valid()) container[key] = before;
  }
}

Replacement::~Replacement() {
  for (const nb::object& container : containers_) try {
      put_back(container);
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("a call's argument");
    }
}

}  // namespace shardgrad::python
