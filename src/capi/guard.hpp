// SPDX-License-Identifier: Apache-2.0
// C ABI: the boundary that no exception crosses. guard() runs a call's body and turns any exception
// into a status and this thread's last error.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

#include "switchback/error.hpp"
#include "switchback/switchback.h"

namespace switchback::capi {

/// Stores the message (cut if it is very long) as this thread's last error and returns the status.
/// It allocates nothing, so that it can report that memory ran out.
switchback_status failed(Status status, const char* message) noexcept;

/// This thread's last error; never null.
const char* last_error() noexcept;

template <class Body>
switchback_status guard(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return SWITCHBACK_OK;
  } catch (const Error& error) {
    // An Error with status ok is a bug; the caller must not mistake the call for a success.
    return failed(error.status() == Status::ok ? Status::internal : error.status(), error.what());
  } catch (const std::bad_alloc&) {
    return failed(Status::out_of_memory, "could not allocate host memory");
  } catch (const std::length_error&) {  // a container was asked for more than max_size()
    return failed(Status::out_of_memory, "could not allocate host memory: the size is too large");
  } catch (const std::exception& error) {
    return failed(Status::internal, error.what());
  } catch (...) {
    return failed(Status::internal, "an exception of unknown type");
  }
}

}  // namespace switchback::capi
