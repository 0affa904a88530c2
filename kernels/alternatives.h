#pragma once
// Kernels that can take the place of a built-in one, each under a name. A library outside the tree offers them:
//
//     static void layer_norm(const Launch& how, OutView y, OutView mean, …) { … }
//     static const Offer mine("mine", kernels::layer_norm, DeviceKind::cpu, DType::f32, layer_norm);
//
// and a program loads the library and chooses, before it runs any operation:
//
//     load_kernels("libmine.so");
//     use_kernels("layer_norm", "mine");

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include <shardgrad/kernels/table.h>

namespace shardgrad {

/// Offers a kernel while its library is loaded.
struct Offer {
  template <class... Args>
  Offer(std::string name, Slot<Args...>& slot, DeviceKind device, DType dtype, typename Slot<Args...>::Kernel kernel)
      : Offer(std::move(name), slot, [&slot, device, dtype, kernel] { slot.replace(device, dtype, kernel); }) {}

 private:
  Offer(std::string name, const SlotBase& slot, std::function<void()> use);
};

/// Loads a library of kernels and operations for the rest of the process. Throws Error(missing) with the loader's
/// reason.
void load_kernels(const std::string& path);
/// Puts the kernels offered under `name` in the place of operation `op`'s, for the devices and dtypes they were offered
/// for. Throws Error(input) that lists the names when there is no such operation or offer.
void use_kernels(std::string_view op, std::string_view name);
/// The same for a list of "operation=name".
void use_all_kernels(std::span<const std::string> choices);

}  // namespace shardgrad
