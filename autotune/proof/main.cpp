// SPDX-License-Identifier: Apache-2.0
// switchback-prove: the tuner's helper program. It loads the library from the file that the tuner
// passes. That file is the tuner's own library, so both processes run the same code even if the
// library was moved or renamed. With a static library, the helper is linked to it.
#include <dlfcn.h>
#include <unistd.h>

#include <cstring>

#include "switchback/prove.hpp"

namespace {

void say(int to, const char* text) {
  const ssize_t ignored = ::write(to, text, std::strlen(text));
  (void)ignored;
}

using Prove = int (*)(int, int, double);

#if defined(SWITCHBACK_PROVE_IS_LINKED)
Prove find(const char*, const char*&) {
  return &switchback::prove_candidates;
}
#else
Prove find(const char* library, const char*& why) {
  why = "it has no library: that of the program which asks is linked statically";
  if (library == nullptr) return nullptr;
  void* const loaded = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  // switchback::prove_candidates(int, int, double)
  void* const found =
      loaded == nullptr ? nullptr : ::dlsym(loaded, "_ZN10switchback16prove_candidatesEiid");
  if (found == nullptr) why = ::dlerror();
  Prove prove = nullptr;
  std::memcpy(&prove, &found, sizeof(prove));
  return prove;
}
#endif

}  // namespace

int main(int argc, char** argv) {
  if (argc >= 2 && std::strcmp(argv[1], "--tuner") == 0) {
    const char* why = nullptr;
    if (const Prove prove = find(argc >= 3 ? argv[2] : nullptr, why))
      return prove(STDIN_FILENO, STDOUT_FILENO, switchback::usual_idle_s);
    say(STDOUT_FILENO, "cannot ");
    say(STDOUT_FILENO, why == nullptr ? "the library could not be loaded" : why);
    say(STDOUT_FILENO, "\n");
    return 1;
  }
  say(STDERR_FILENO,
      "switchback-prove is a helper of libswitchback's tuner, which starts it by itself. It runs\n"
      "configurations that may crash in its own process before the program that tunes does.\n");
  return 2;
}
