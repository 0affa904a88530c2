#include <shardgrad/kernels/sim/static_shared.h>

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include <shardgrad/kernels/sim/launch.h>
#include <shardgrad/kernels/sim/places.h>

namespace shardgrad::sim {
namespace {

using Library = StaticShared::Library;
using Symbol = StaticShared::Symbol;

int look(dl_phdr_info* info, size_t, void* data) {
  auto& library = *static_cast<Library*>(data);
  for (int i = 0; i < info->dlpi_phnum && info->dlpi_tls_data; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_TLS) continue;
    auto begin = reinterpret_cast<uintptr_t>(info->dlpi_tls_data), end = begin + info->dlpi_phdr[i].p_memsz;
    if (library.address < begin || library.address >= end) continue;
    library.begin = begin;
    library.end = end;
    library.file = *info->dlpi_name ? info->dlpi_name : "/proc/self/exe";
    return 1;
  }
  return 0;
}

int look_for_data(dl_phdr_info* info, size_t, void* data) {
  auto& region = *static_cast<Region*>(data);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, end = begin + info->dlpi_phdr[i].p_memsz;
    if (info->dlpi_phdr[i].p_type != PT_LOAD || region.begin < begin || region.begin >= end) continue;
    region.begin = begin;
    region.end = end;
    return 1;
  }
  return 0;
}

template <class T> std::vector<T> read_table(std::ifstream& file, uint64_t offset, uint64_t bytes) {
  std::vector<T> table(bytes / sizeof(T));
  file.seekg(std::streamoff(offset));
  file.read(reinterpret_cast<char*>(table.data()), std::streamsize(table.size() * sizeof(T)));
  return table;
}

std::string demangled(const std::string& mangled) {
  char* plain = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, nullptr);
  std::string name = plain ? plain : mangled;
  std::free(plain);
  return name;
}

// The thread-local variables in an ELF file's symbol table.
std::vector<Symbol> read_symbols(const std::string& path) {
  std::vector<Symbol> found;
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof(header)) || header.e_ident[EI_CLASS] != ELFCLASS64) return {};
  auto sections = read_table<Elf64_Shdr>(file, header.e_shoff, uint64_t(header.e_shnum) * sizeof(Elf64_Shdr));
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
    int source = 0;  // its own symbols follow its name
    for (const Elf64_Sym& symbol : read_table<Elf64_Sym>(file, section.sh_offset, section.sh_size)) {
      source += ELF64_ST_TYPE(symbol.st_info) == STT_FILE;
      if (ELF64_ST_TYPE(symbol.st_info) != STT_TLS || symbol.st_size == 0) continue;
      std::string name;
      file.seekg(std::streamoff(sections[section.sh_link].sh_offset + symbol.st_name));
      std::getline(file, name, '\0');
      std::string full = demangled(name);
      bool local = name.starts_with("_ZZ") && full.find("::") != std::string::npos;
      found.push_back({symbol.st_value, symbol.st_size, source, full, local ? full.substr(0, full.rfind("::")) : ""});
    }
  }
  return found;
}

// The kernel in whose body a variable "void space::kernel<float>(float*)::tile" stands; none for other functions.
std::string owner_of(const std::string& variable) {
  for (const KernelRecord* kernel = KernelRecord::first(); kernel; kernel = kernel->next()) {
    std::string name = base_name(kernel->name());
    for (size_t at = variable.find(name); at != std::string::npos; at = variable.find(name, at + 1)) {
      char before = at > 0 ? variable[at - 1] : ' ', after = variable[at + name.size()];
      if ((before == ' ' || before == ':') && (after == '<' || after == '(')) return name;
    }
  }
  return "";
}

}  // namespace

Region program_data(uintptr_t address) {
  Region region{address, address, Region::Kind::parameters, false, nullptr, "the program's own data"};
  return dl_iterate_phdr(look_for_data, &region) ? region : Region{};
}

Region* StaticShared::find(uintptr_t address) {
  for (size_t i = 0; i < variables_.size(); ++i)
    if (variables_[i]->region.holds(address, 1)) {
      if (i > 0) std::swap(variables_[i], variables_[i - 1]);  // those in use are found first
      return &variables_[i > 0 ? i - 1 : 0]->region;
    }
  Library library{address};
  return dl_iterate_phdr(look, &library) ? &enter(library) : nullptr;
}

Region& StaticShared::enter(const Library& library) {
  auto& variable = *variables_.emplace_back(std::make_unique<Variable>());
  variable.region = {library.begin, library.end, Region::Kind::shared, true, nullptr, "", ""};
  variable.name = "the shared memory";
  auto [symbols, fresh] = symbols_.try_emplace(library.file);
  if (fresh) symbols->second = read_symbols(library.file);
  uint64_t offset = library.address - library.begin;
  for (const Symbol& symbol : symbols->second) {
    if (offset < symbol.offset || offset >= symbol.offset + symbol.size) continue;
    variable.region.begin = library.begin + symbol.offset;
    variable.region.end = variable.region.begin + symbol.size;
    size_t cut = symbol.name.rfind("::");
    variable.name =
        "the shared variable '" + (cut == std::string::npos ? symbol.name : symbol.name.substr(cut + 2)) + "'";
    variable.owner = owner_of(symbol.name);
    variable.function = symbol.function.empty() ? symbol.name : symbol.function;
    for (const Symbol& other : symbols->second)
      if (&other == &symbol ||
          (!symbol.function.empty() && other.source == symbol.source && other.function == symbol.function))
        variable.region.function_bytes += other.size;
  }
  variable.cells.resize(cells_for(variable.region.begin, variable.region.end));
  variable.region.cells = variable.cells.data();
  variable.region.what = variable.name.c_str();
  variable.region.owner = variable.owner.c_str();
  variable.region.function = variable.function.c_str();
  return variable.region;
}

}  // namespace shardgrad::sim
