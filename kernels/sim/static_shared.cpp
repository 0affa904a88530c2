#include <shardgrad/kernels/sim/static_shared.h>

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

namespace shardgrad::sim {
namespace {

// The library whose thread-local memory holds an address, and where that memory is in the calling thread.
struct Library {
  uintptr_t address, begin = 0, end = 0;
  std::string file;
};

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

struct Symbol {
  uint64_t offset, size;
  std::string name;
};

template <class T> std::vector<T> read_table(std::ifstream& file, uint64_t offset, uint64_t bytes) {
  std::vector<T> table(bytes / sizeof(T));
  file.seekg(std::streamoff(offset));
  file.read(reinterpret_cast<char*>(table.data()), std::streamsize(table.size() * sizeof(T)));
  return table;
}

// The thread-local variable at this offset, from the ELF file's symbol table.
std::optional<Symbol> symbol_at(const std::string& path, uint64_t offset) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof(header)) || header.e_ident[EI_CLASS] != ELFCLASS64) return {};
  auto sections = read_table<Elf64_Shdr>(file, header.e_shoff, uint64_t(header.e_shnum) * sizeof(Elf64_Shdr));
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
    const Elf64_Shdr& text = sections[section.sh_link];
    std::vector<char> names;
    for (const Elf64_Sym& symbol : read_table<Elf64_Sym>(file, section.sh_offset, section.sh_size)) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_TLS || offset < symbol.st_value ||
          offset >= symbol.st_value + symbol.st_size)
        continue;
      if (names.empty()) names = read_table<char>(file, text.sh_offset, text.sh_size);
      return Symbol{symbol.st_value, symbol.st_size, &names[symbol.st_name]};
    }
  }
  return {};
}

// "kernel(float*)::tile" of a mangled name is "tile".
std::string variable_name(const std::string& mangled) {
  char* plain = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, nullptr);
  std::string name = plain ? plain : mangled;
  std::free(plain);
  size_t cut = name.rfind("::");
  return cut == std::string::npos ? name : name.substr(cut + 2);
}

}  // namespace

Region* StaticShared::find(uintptr_t address) {
  for (Variable& variable : variables_)
    if (variable.region.holds(address, 1)) return &variable.region;
  Library library{address};
  if (!dl_iterate_phdr(look, &library)) return nullptr;
  Region region{library.begin, library.end, Region::Kind::shared, true, nullptr, ""};
  std::string name = "the shared memory";
  if (auto symbol = symbol_at(library.file, address - library.begin)) {
    region.begin = library.begin + symbol->offset;
    region.end = region.begin + symbol->size;
    name = "the shared variable '" + variable_name(symbol->name) + "'";
  }
  Variable& variable = variables_.emplace_back(region, std::vector<Cell>(cells_for(region.begin, region.end)), name);
  variable.region.cells = variable.cells.data();
  variable.region.what = variable.name.c_str();
  return &variable.region;
}

}  // namespace shardgrad::sim
