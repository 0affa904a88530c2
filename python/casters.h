#pragma once
// How dtypes, devices and numbers are taken.

#include <optional>
#include <string>
#include <variant>

#include <nanobind/nanobind.h>

#include <shardgrad/core/dtype.h>

namespace shardgrad::python {

/// A device as it was given: a name, or a number, which place_of refuses in words.
struct GivenDevice {
  std::string name;
  std::optional<int64_t> number;
};

/// A number of Python's.
struct Number : std::variant<int64_t, double> {
  using variant::variant;
  bool is_truth = false;  ///< True or False, of Python's or NumPy's
};

/// Whether it is True or False, of Python's or NumPy's.
bool is_truth(nanobind::handle given) noexcept;

/// Whether this is a tensor, once it has been taken as a number, whose gradient would be lost.
bool loses_gradient(nanobind::handle given) noexcept;
[[noreturn]] void fail_of_lost_gradient();

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

// Also a tensor of one number. Where it has a gradient the call throws, or, of an argument that may be something else,
// finds nothing that fits.
template <> struct type_caster<double> {
  using Value = double;
  static constexpr auto Name = const_name("float");
  template <typename T> using Cast = double;
  template <typename T> bool can_cast() const noexcept { return !loses_; }
  explicit operator double() const {
    if (loses_) shardgrad::python::fail_of_lost_gradient();
    return value_;
  }

  bool from_python(handle source, uint32_t flags, cleanup_list* cleanup) noexcept {
    if (!NB_CALL(load_f64)(NB_CTX_C(cleanup), source.ptr(), flags, &value_)) return false;
    loses_ = !PyFloat_CheckExact(source.ptr()) && shardgrad::python::loses_gradient(source);
    return true;
  }
  static handle from_cpp(double source, rv_policy, cleanup_list*) noexcept { return PyFloat_FromDouble(source); }

 private:
  double value_ = 0;
  bool loses_ = false;
};

template <> struct type_caster<shardgrad::python::Number> {
  using Number = shardgrad::python::Number;
  using Value = Number;
  static constexpr auto Name = const_name("int | float");
  template <typename T> using Cast = Number;
  template <typename T> bool can_cast() const noexcept { return !fraction_ || fraction_->can_cast<double>(); }
  explicit operator Number() const {
    if (!fraction_) return number_;
    return fraction_->operator double();
  }

  bool from_python(handle source, uint32_t flags, cleanup_list* cleanup) noexcept {
    number_.is_truth = shardgrad::python::is_truth(source);
    int64_t whole = number_.is_truth ? PyObject_IsTrue(source.ptr()) : 0;
    if (number_.is_truth ||
        (!PyFloat_Check(source.ptr()) && NB_CALL(load_i64)(NB_CTX_C(cleanup), source.ptr(), flags, &whole))) {
      number_.emplace<int64_t>(whole);
      return true;
    }
    return fraction_.emplace().from_python(source, flags, cleanup);
  }

 private:
  Number number_;
  std::optional<type_caster<double>> fraction_;
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
