# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class for each error status of the library. Each is also a builtin exception."""

from __future__ import annotations


class LibraryError(ImportError):
    """libswitchback is missing, does not load, or has an ABI version that this package cannot use."""


class Error(RuntimeError):
    """A call of the library failed. `status` is the library's name of the error, such as "invalid_argument".
    """

    status = "unknown"


class InvalidArgument(Error, ValueError):
    """A shape, stride, dtype, name or value breaks a rule, which the message states."""

    status = "invalid_argument"


class Unsupported(Error, NotImplementedError):
    """The call is valid, but this build, machine or engine cannot do it."""

    status = "unsupported"


class OutOfMemory(Error, MemoryError):
    """An allocation failed. Nothing was changed."""

    status = "out_of_memory"


class DeviceError(Error):
    """The device is missing or has failed."""

    status = "device_error"


class IoError(Error, OSError):
    """A file could not be read or written."""

    status = "io_error"


class InvalidState(Error):
    """The object cannot do this in its present state."""

    status = "invalid_state"


class InternalError(Error):
    """A bug in the library. Please report it."""

    status = "internal"


_CLASSES = {
    1: InvalidArgument,
    2: Unsupported,
    3: OutOfMemory,
    4: DeviceError,
    5: IoError,
    6: InvalidState,
    7: InternalError,
}


def error_of(status: int, message: str) -> Error:
    """Creates the exception for an error status (any status except 0)."""
    made = _CLASSES.get(status)
    if made is not None:
        return made(message)
    return Error(f"{message} (status {status}, which this version does not know)")
