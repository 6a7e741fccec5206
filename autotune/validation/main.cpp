// SPDX-License-Identifier: Apache-2.0
// switchback-validate: the tuner's helper program. It loads the library from the file that the
// tuner passes. That file is the tuner's own library, so both processes run the same code even if
// the library was moved or renamed. With a static library, the helper is linked to it.
#include <dlfcn.h>
#include <unistd.h>

#include <cstring>

#include "switchback/validate.hpp"

namespace {

void say(int to, const char* text) {
  const ssize_t ignored = ::write(to, text, std::strlen(text));
  (void)ignored;
}

using Validate = int (*)(int, int, double);

#if defined(SWITCHBACK_VALIDATE_IS_LINKED)
Validate find(const char*, const char*&) {
  return &switchback::validate_candidates;
}
#else
Validate find(const char* library, const char*& why) {
  why = "it has no library to load: the program that started it is linked statically";
  if (library == nullptr) return nullptr;
  void* const loaded = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  // The mangled name of switchback::validate_candidates(int, int, double).
  void* const found =
      loaded == nullptr ? nullptr : ::dlsym(loaded, "_ZN10switchback19validate_candidatesEiid");
  if (found == nullptr) why = ::dlerror();
  Validate validate = nullptr;
  std::memcpy(&validate, &found, sizeof(validate));
  return validate;
}
#endif

}  // namespace

int main(int argc, char** argv) {
  if (argc >= 2 && std::strcmp(argv[1], "--tuner") == 0) {
    const char* why = nullptr;
    if (const Validate validate = find(argc >= 3 ? argv[2] : nullptr, why))
      return validate(STDIN_FILENO, STDOUT_FILENO, switchback::default_idle_s);
    say(STDOUT_FILENO, "cannot ");
    say(STDOUT_FILENO, why == nullptr ? "the library could not be loaded" : why);
    say(STDOUT_FILENO, "\n");
    return 1;
  }
  say(STDERR_FILENO,
      "switchback-validate is a helper program that libswitchback's tuner starts.\n"
      "It runs configurations that may crash before the tuner's program runs them.\n");
  return 2;
}
