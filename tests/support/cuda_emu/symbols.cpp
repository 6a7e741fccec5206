// SPDX-License-Identifier: Apache-2.0
// Reads the symbol tables of the program and its libraries. Neither the language nor the linker has
// another way to enumerate function-local statics of templates, or to name a function without
// linkage.
#include "symbols.hpp"

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#if defined(__linux__)
#include <link.h>
#endif

namespace switchback_cuda_emu {

namespace {

#if defined(__linux__)
template <class T>
bool read(const std::vector<char>& file, std::size_t at, T* value) {
  if (at > file.size() || sizeof(T) > file.size() - at) return false;
  std::memcpy(value, file.data() + at, sizeof(T));
  return true;
}

void read_symbols(const std::vector<char>& file, const ElfW(Shdr) & symbols,
                  const ElfW(Shdr) & names, ElfW(Addr) base, const OnSymbol& found) {
  if (names.sh_offset > file.size() || names.sh_size > file.size() - names.sh_offset) return;
  for (std::size_t at = 0; at + sizeof(ElfW(Sym)) <= symbols.sh_size; at += sizeof(ElfW(Sym))) {
    ElfW(Sym) symbol;
    if (!read(file, symbols.sh_offset + at, &symbol)) return;
    // Type 1 is STT_OBJECT (a variable), type 2 is STT_FUNC.
    const int type = symbol.st_info & 0xf;
    if ((type != 1 && type != 2) || symbol.st_shndx == SHN_UNDEF || symbol.st_name >= names.sh_size)
      continue;
    // A name has an end, because the table of names ends with a zero byte.
    found({file.data() + names.sh_offset + symbol.st_name,
           reinterpret_cast<void*>(base + symbol.st_value), symbol.st_size, type == 2});
  }
}

int read_module(dl_phdr_info* info, std::size_t, void* context) {
  const std::string path =
      info->dlpi_name == nullptr || *info->dlpi_name == 0 ? "/proc/self/exe" : info->dlpi_name;
  std::ifstream stream(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = stream ? static_cast<std::streamoff>(stream.tellg()) : 0;
  if (size <= 0) return 0;
  std::vector<char> file(static_cast<std::size_t>(size));
  stream.seekg(0);
  stream.read(file.data(), size);
  ElfW(Ehdr) header{};
  if (!stream || !read(file, 0, &header) ||
      std::memcmp(static_cast<const void*>(header.e_ident), ELFMAG, SELFMAG) != 0)
    return 0;
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    ElfW(Shdr) section{};
    ElfW(Shdr) names{};
    if (!read(file, header.e_shoff + i * header.e_shentsize, &section) ||
        section.sh_type != SHT_SYMTAB ||
        !read(file, header.e_shoff + std::size_t{section.sh_link} * header.e_shentsize, &names))
      continue;
    read_symbols(file, section, names, info->dlpi_addr, *static_cast<const OnSymbol*>(context));
  }
  return 0;
}
#endif

}  // namespace

void for_each_symbol([[maybe_unused]] const OnSymbol& found) {
#if defined(__linux__)
  dl_iterate_phdr(read_module, const_cast<OnSymbol*>(&found));
#endif
}

}  // namespace switchback_cuda_emu
