#include <shardgrad/kernels/alternatives.h>

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

struct Entry {
  std::string name;
  const SlotBase* slot;
  std::function<void()> use;
};

// Written while libraries are loaded, like the table itself.
std::vector<Entry>& offers() {
  static std::vector<Entry> offers;
  return offers;
}

}  // namespace

Offer::Offer(std::string name, const SlotBase& slot, std::function<void()> use) {
  offers().push_back({std::move(name), &slot, std::move(use)});
}

void load_kernels(const std::string& path) {
  std::error_code unknown;
  bool file = std::filesystem::exists(path, unknown);
  std::string place = file ? std::filesystem::absolute(path).string() : path;
  if (!dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL))
    fail_as(ErrorKind::missing, "a library (`libraries`) cannot be loaded: ", dlerror());
}

void use_kernels(std::string_view op, std::string_view name) {
  auto slots = kernels::all_slots();
  auto slot = std::ranges::find_if(slots, [&](const SlotBase* each) { return each->name() == op; });
  SG_CHECK(slot != slots.end(), "kernels.", op, ": there is no operation '", op, "' in the kernel table");
  std::string offered;
  bool found = false;
  for (const Entry& entry : offers()) {
    if (entry.slot != *slot) continue;
    std::string quoted = concat("'", entry.name, "'");
    if (offered.find(quoted) == std::string::npos) offered += concat(offered.empty() ? "" : ", ", quoted);
    if (entry.name != name) continue;
    entry.use();
    found = true;
  }
  SG_CHECK(found, "kernels.", op, ": nobody offers a kernel '", name, "'; ",
           offered.empty() ? "nothing is offered for it" : concat("offered: ", offered),
           ". Load the library that has it (`libraries`)");
}

void use_all_kernels(std::span<const std::string> choices) {
  for (const std::string& choice : choices) {
    size_t equals = choice.find('=');
    SG_CHECK(equals != std::string::npos, "kernels: '", choice, "' is not of the form operation=name");
    use_kernels(choice.substr(0, equals), choice.substr(equals + 1));
  }
}

}  // namespace shardgrad
