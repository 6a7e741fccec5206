// SPDX-License-Identifier: Apache-2.0
// Core: fork(). A child process has one thread, the one that called fork(): it has none of the
// threads that a Context had in the parent, and cannot use the parent's devices.
#pragma once

namespace switchback::core {

/// The number of fork()s between the process that loaded the library and this one: an object of an
/// earlier generation was made by a parent. pthread_atfork() counts them, so children of vfork(),
/// _Fork() and clone() do not count; POSIX lets those call little more than exec.
unsigned fork_generation() noexcept;

}  // namespace switchback::core
