#include <shardgrad/kernels/sim/places.h>

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <cstdio>
#include <memory>
#include <vector>

#include <shardgrad/core/error.h>

namespace shardgrad::sim {
namespace {

std::string last_parts(std::string path) {  // the file's name and its folder's
  size_t cut = path.rfind('/');
  if (cut != std::string::npos && cut > 0) cut = path.rfind('/', cut - 1);
  return cut == std::string::npos ? path : path.substr(cut + 1);
}

std::vector<std::string> output_of(const std::string& command) {
  std::vector<std::string> lines;
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::array<char, 4096> buffer;
  while (pipe && std::fgets(buffer.data(), int(buffer.size()), pipe.get())) {
    lines.emplace_back(buffer.data());
    if (lines.back().ends_with('\n')) lines.back().pop_back();
  }
  return lines;
}

// An instruction's chain of source lines, innermost first. Frames of the simulator's own headers are left out.
std::string lines_of_instruction(uintptr_t address) {
  Dl_info info{};
  link_map* map = nullptr;
  auto found = dladdr1(reinterpret_cast<void*>(address), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP);
  if (!found || !map) return concat("address ", reinterpret_cast<void*>(address));
  std::string file = map->l_name && *map->l_name ? map->l_name : "/proc/self/exe";
  char target[4096];
  if (char* real = realpath(file.c_str(), target)) file = real;
  std::string text;
  if (file.find('\'') == std::string::npos)
    for (std::string& line : output_of(
             concat("addr2line -ie '", file, "' ", reinterpret_cast<void*>(address - map->l_addr), " 2>/dev/null"))) {
      line = line.substr(0, line.find(" ("));  // "(discriminator 2)"
      if (line.starts_with("??") || line.ends_with(":?") || line.find("kernels/sim/") != std::string::npos) continue;
      line = last_parts(line);
      if (text.empty())
        text = line;
      else if (text.find(line) == std::string::npos)
        text += ", from " + line;
    }
  if (!text.empty()) return text;
  if (info.dli_sname) return concat(info.dli_sname, "+", address - uintptr_t(info.dli_saddr));
  return concat(last_parts(file), "+", reinterpret_cast<void*>(address - map->l_addr));
}

}  // namespace

size_t Places::number_of(const SourceLine& line) {
  for (size_t i = 0; i < lines_.size(); ++i)
    if (is_at(lines_[i], line)) return i;
  lines_.push_back(line);
  return lines_.size() - 1;
}

std::string Places::describe(Code code) const {
  if (!(code & kLine)) return lines_of_instruction(uintptr_t(code));
  const SourceLine& line = lines_[size_t(code & ~kLine)];
  return concat(last_parts(line.file), ':', line.line);
}

std::string kernel_name(const std::string& pretty) {
  size_t begin = pretty.find("Kernel = ");
  if (begin == std::string::npos) return pretty;
  begin += 9;
  std::string name = pretty.substr(begin, pretty.rfind(']') - begin);
  for (const char* noise : {"shardgrad::sim::", "shardgrad::test::", "shardgrad::", "{anonymous}::",
                            "(anonymous namespace)::", "(anonymous namespace)", "& ", "&"})
    for (size_t at; (at = name.find(noise)) != std::string::npos;) name.erase(at, std::string(noise).size());
  if (name.starts_with('(') && name.ends_with(')')) name = name.substr(1, name.size() - 2);
  return name;
}

}  // namespace shardgrad::sim
