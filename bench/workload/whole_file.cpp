// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/whole_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/check.hpp"

namespace switchback::bench {

namespace fs = std::filesystem;

namespace {

// The file to replace: if the path is a symbolic link, that is the link's target, not the link.
fs::path target_of(const fs::path& file) {
  std::error_code ignored;
  return fs::is_symlink(file, ignored) ? fs::weakly_canonical(file, ignored) : file;
}

struct Temporary {
  fs::path path;
  autotune::File file;
};

// Creates an empty temporary file next to the target file, to be renamed to it later.
Temporary make_temporary(const fs::path& target) {
  fs::path path = target;
  path += fmt::format(".tmp{}", ::getpid());
  autotune::File file = autotune::open_file(path, O_WRONLY | O_CREAT | O_EXCL);
  return {std::move(path), std::move(file)};
}

}  // namespace

void check_new_file(std::string_view argument, const fs::path& file, bool force) {
  std::error_code ignored;
  const fs::file_status status = fs::status(file, ignored);
  const std::string name = file.string();
  if (fs::exists(status)) {
    core::require(fs::is_regular_file(status), "{} {}: it is not a regular file", argument, name);
    core::require(force, "{} {}: the file exists; --force replaces it", argument, name);
  }
  const Temporary temporary = make_temporary(target_of(file));
  if (!temporary.file.is_open())
    core::fail(Status::io_error, "{} {}: no file can be created there: {}", argument, name,
               std::strerror(errno));
  fs::remove(temporary.path, ignored);
}

void write_new_file(const fs::path& file, std::string_view text) {
  std::error_code ignored;
  const fs::path target = target_of(file);
  const Temporary temporary = make_temporary(target);
  if (!temporary.file.is_open()) autotune::fail_io(temporary.path, "it cannot be created", errno);
  const std::string error = autotune::write_and_sync(temporary.file, text);
  if (!error.empty()) {
    fs::remove(temporary.path, ignored);
    core::fail(Status::io_error, "{}: it cannot be written: {}", temporary.path.string(), error);
  }
  std::error_code failed;
  fs::rename(temporary.path, target, failed);
  if (failed) {
    fs::remove(temporary.path, ignored);
    autotune::fail_io(target, "it cannot be replaced", failed.value());
  }
  autotune::sync_directory(autotune::directory_of(target));
}

void check_not_the_same(std::string_view argument, const fs::path& file, const fs::path& read) {
  std::error_code ignored;
  const std::string name = file.string();
  core::require(!fs::equivalent(file, read, ignored),
                "{} {}: it is also an input file; name another one", argument, name);
}

NewLines::NewLines(std::string_view argument, std::string path, bool force)
    : argument_(argument), path_(std::move(path)) {
  if (path_.empty()) return;
  std::error_code ignored;
  const fs::file_status status = fs::status(path_, ignored);
  const bool special = fs::is_character_file(status) || fs::is_fifo(status);
  if (!special) check_new_file(argument, path_, force || fs::is_empty(path_, ignored));
  file_ = autotune::open_file(path_, special ? O_WRONLY : O_WRONLY | O_CREAT | O_TRUNC | O_APPEND);
  if (!file_.is_open())
    core::fail(Status::io_error, "{} {}: cannot be written: {}", argument_, path_,
               std::strerror(errno));
}

void NewLines::write(std::string_view line) {
  if (!file_.is_open()) return;
  std::string bytes(line);
  bytes += '\n';
  for (std::string_view left = bytes; !left.empty();) {
    const ssize_t count = ::write(file_.fd(), left.data(), left.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      core::fail(Status::io_error, "{} {}: cannot be written: {}", argument_, path_,
                 std::strerror(errno));
    left.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace switchback::bench
