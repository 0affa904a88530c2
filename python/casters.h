#pragma once
// How dtypes and devices are taken.

#include <optional>
#include <string>

#include <nanobind/nanobind.h>

#include <shardgrad/core/dtype.h>

namespace shardgrad::python {

/// A device as it was given: a name, or a number, which place_of refuses in words.
struct GivenDevice {
  std::string name;
  std::optional<int64_t> number;
};

}  // namespace shardgrad::python

namespace nanobind::detail {

// A number is no dtype, though it would stand for one in an enum.
template <> struct type_caster<shardgrad::DType> {
  NB_TYPE_CASTER(shardgrad::DType, const_name<shardgrad::DType>())

  bool from_python(handle source, uint32_t flags, cleanup_list* cleanup) noexcept {
    int64_t number = 0;
    if (!NB_CALL(enum_from_python)(NB_CTX_C(cleanup), &typeid(shardgrad::DType), source.ptr(), &number,
                                   flags & ~uint32_t(cast_flags::convert)))
      return false;
    value = shardgrad::DType(number);
    return true;
  }
  static handle from_cpp(shardgrad::DType source, rv_policy, cleanup_list* cleanup) noexcept {
    return NB_CALL(enum_from_cpp)(NB_CTX_C(cleanup), &typeid(shardgrad::DType), int64_t(source));
  }
};

template <> struct type_caster<shardgrad::python::GivenDevice> {
  NB_TYPE_CASTER(shardgrad::python::GivenDevice, const_name("str"))

  bool from_python(handle source, uint32_t, cleanup_list*) noexcept {
    if (PyLong_Check(source.ptr()) && !PyBool_Check(source.ptr())) {
      value.number = PyLong_AsLongLong(source.ptr());
      if (PyErr_Occurred()) PyErr_Clear();
      return true;
    }
    if (!PyUnicode_Check(source.ptr())) return false;
    const char* text = PyUnicode_AsUTF8(source.ptr());
    if (!text) PyErr_Clear();
    value.name = text ? text : "?";
    return true;
  }
};

}  // namespace nanobind::detail
