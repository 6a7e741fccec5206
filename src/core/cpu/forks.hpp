// SPDX-License-Identifier: Apache-2.0
// Core: detects fork(). A child process has only the thread that called fork(). It lacks the
// threads of the parent's Contexts, and cannot use the parent's devices.
#pragma once

namespace switchback::core {

/// The number of fork()s between the process that loaded the library and this process. An object
/// that stored a smaller number was made by a parent process. pthread_atfork() counts the forks, so
/// children of vfork(), _Fork() and clone() do not count; POSIX allows such a child to do little
/// more than call exec.
unsigned fork_generation() noexcept;

}  // namespace switchback::core
