// SPDX-License-Identifier: Apache-2.0
#include "autotune/installed.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <stdlib.h>  // NOLINT: secure_getenv is glibc's
#include <sys/auxv.h>
#include <unistd.h>

#include <cstdint>
#include <system_error>
#include <utility>

namespace switchback::autotune {

namespace {

// The file that this code was loaded from, with links resolved. For the main program the loader
// knows only the name that it was started with, which a shell may have found through PATH.
std::filesystem::path own_file(bool* is_the_program = nullptr) {
  Dl_info own;
  if (::dladdr(reinterpret_cast<const void*>(&own_file), &own) == 0) return {};
  const auto headers = static_cast<std::uintptr_t>(::getauxval(AT_PHDR));
  Dl_info program;
  const bool is_program = headers != 0 &&
                          ::dladdr(reinterpret_cast<const void*>(headers), &program) != 0 &&
                          program.dli_fbase == own.dli_fbase;
  if (is_the_program != nullptr) *is_the_program = is_program;
  std::error_code error;
  std::filesystem::path file;
  if (is_program) file = std::filesystem::read_symlink("/proc/self/exe", error);
  if (file.empty() && own.dli_fname != nullptr)
    file = std::filesystem::canonical(own.dli_fname, error);
  return file;
}

constexpr const char* helper_name = "switchback-validate";

bool can_run(const std::filesystem::path& file) {
  std::error_code error;
  return std::filesystem::is_regular_file(file, error) && ::access(file.c_str(), X_OK) == 0;
}

}  // namespace

std::string from_environment(const char* name) {
  const char* value = ::secure_getenv(name);
  return value == nullptr ? "" : value;
}

// The list is in share/switchback/configs next to the folder of the library's file. (If the library
// is linked statically, next to the folder of the program's file.) This holds when installed and in
// a build folder. The list is one level higher if libraries are in lib/<architecture>.
std::filesystem::path installed_list() {
  const std::filesystem::path file = own_file();
  if (file.empty()) return {};
  std::error_code error;
  const std::filesystem::path list = std::filesystem::path("share") / "switchback" / "configs";
  const std::filesystem::path prefix = file.parent_path().parent_path();
  const std::filesystem::path higher = prefix.parent_path() / list;
  if (!std::filesystem::is_directory(prefix / list, error) &&
      std::filesystem::is_directory(higher, error))
    return higher;
  return prefix / list;
}

// Where the helper program is:
// - Next to an installed library: in the folder `switchback`.
// - Next to a statically linked program: in the program's folder, or in the lib folder of its
// prefix.
// - In a build: in the folder bin.
std::vector<std::string> helper_command(const std::string& named, std::string& why) {
  bool is_program = false;
  const std::filesystem::path own = own_file(&is_program);
  const auto command = [&](const std::filesystem::path& helper) {
    std::vector<std::string> words = {helper.string(), "--tuner"};
    if (!is_program) words.push_back(own.string());
    return words;
  };
  const auto given = [&](const std::string& file, const char* by) {
    if (can_run(file)) return command(file);
    why = fmt::format("the helper program was not found: {} = {} is not an executable file", by,
                      file);
    return std::vector<std::string>();
  };
  if (!named.empty()) return given(named, "TunerOptions::validator");
  if (const std::string file = from_environment("SWITCHBACK_VALIDATE"); !file.empty())
    return given(file, "SWITCHBACK_VALIDATE");
  const std::filesystem::path folder = own.parent_path();
  const std::filesystem::path prefix = folder.parent_path();
  for (const std::filesystem::path& place :
       {folder / "switchback", folder, prefix / "lib" / "switchback", prefix / "bin"})
    if (can_run(place / helper_name)) return command(place / helper_name);
  why = fmt::format(
      "the helper program was not found: {} is neither in {} nor in {}, and SWITCHBACK_VALIDATE is "
      "not set",
      helper_name, (folder / "switchback").string(), folder.string());
  return {};
}

}  // namespace switchback::autotune
