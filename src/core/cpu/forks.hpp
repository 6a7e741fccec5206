// SPDX-License-Identifier: Apache-2.0
// Core: fork(). A child process has one thread, the one that called fork(): the threads that a
// Context had in the parent are not there, nor is the parent's use of a device.
#pragma once

namespace switchback::core {

/// How many fork()s lie between this process and the one that loaded the library: an object made in
/// another generation was made by a parent. It is counted by pthread_atfork(), so children of
/// vfork(), _Fork() and clone() do not count; POSIX lets those call next to nothing but exec.
unsigned fork_generation() noexcept;

}  // namespace switchback::core
