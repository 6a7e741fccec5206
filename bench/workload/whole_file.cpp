// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/whole_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "autotune/store/file.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace fs = std::filesystem;

void check_new_file(std::string_view argument, const fs::path& file, bool force) {
  std::error_code ignored;
  const fs::file_status status = fs::status(file, ignored);
  if (!fs::exists(status)) return;
  const std::string name = file.string();
  core::require(fs::is_regular_file(status), "{} {}: it is no regular file", argument, name);
  core::require(force, "{} {}: the file exists; --force replaces it", argument, name);
}

void write_new_file(const fs::path& file, std::string_view text) {
  std::error_code ignored;
  // What a link names is replaced, not the link.
  const fs::path target = fs::is_symlink(file, ignored) ? fs::canonical(file, ignored) : file;
  fs::path temporary = target;
  temporary += fmt::format(".tmp{}", ::getpid());
  const autotune::File out = autotune::open_file(temporary, O_WRONLY | O_CREAT | O_EXCL);
  if (!out.is_open()) autotune::fail_io(temporary, "it cannot be created", errno);
  const std::string error = autotune::write_and_sync(out, text);
  if (!error.empty()) {
    fs::remove(temporary, ignored);
    core::fail(Status::io_error, "{}: it cannot be written: {}", temporary.string(), error);
  }
  std::error_code failed;
  fs::rename(temporary, target, failed);
  if (failed) {
    fs::remove(temporary, ignored);
    autotune::fail_io(target, "it cannot be replaced", failed.value());
  }
  autotune::sync_directory(autotune::directory_of(target));
}

}  // namespace switchback::bench
