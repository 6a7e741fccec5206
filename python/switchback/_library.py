# SPDX-License-Identifier: Apache-2.0
"""Finds libswitchback, loads it once, checks its ABI version and turns statuses into exceptions."""

from __future__ import annotations

import ctypes
import ctypes.util
import glob
import os
import threading

from . import _abi
from ._errors import LibraryError, error_of

VARIABLE = "SWITCHBACK_LIBRARY"
_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")
_SYSTEM_NAME = "libswitchback.so"

_lock = threading.Lock()
_loaded = None


def library():
    """The loaded C library, a ctypes.CDLL with prototypes. Raises LibraryError if it cannot be loaded."""
    if _loaded is None:
        _load()
    return _loaded


def library_path() -> str:
    """The path of the loaded library, as it was passed to the loader."""
    return library()._name


def library_version() -> str:
    """The version of the loaded library, such as "0.1.0"."""
    return library().switchback_version_string().decode()


def abi_version() -> tuple[int, int]:
    """The library's ABI version as (major, minor)."""
    return _split(library().switchback_abi_version())


def check(status: int) -> None:
    """Raises the exception for a status that is not 0, with the library's message."""
    if status:
        raise error_of(status, library().switchback_last_error().decode(errors="replace"))


def check_abi(loaded, path: str) -> None:
    """Raises LibraryError unless `loaded` is libswitchback with an ABI version that this package can use."""
    try:
        function = loaded.switchback_abi_version
    except AttributeError:
        raise LibraryError(
            f"{path} has no switchback_abi_version: it is not libswitchback"
        ) from None
    function.restype = ctypes.c_uint32
    major, minor = _split(function())
    if major != _abi.VERSION_MAJOR or minor < _abi.VERSION_MINOR:
        raise LibraryError(
            f"{path} has ABI version {major}.{minor}; this package needs {_abi.VERSION_MAJOR}."
            f"{_abi.VERSION_MINOR} or a later {_abi.VERSION_MAJOR}.x"
        )


def _split(version: int) -> tuple[int, int]:
    return version >> 16, version & 0xFFFF


def _candidates():
    """The library files to try, in order; only $SWITCHBACK_LIBRARY if it is set."""
    named = os.environ.get(VARIABLE)
    if named:
        yield named
        return
    yield from sorted(glob.glob(os.path.join(_FOLDER, _SYSTEM_NAME + "*")))[:1]
    yield _SYSTEM_NAME
    known = ctypes.util.find_library("switchback")  # slow, and only needed if there is no dev package
    if known not in (None, _SYSTEM_NAME):
        yield known


def _open(path: str):
    loaded = ctypes.CDLL(path)
    check_abi(loaded, path)
    try:
        _abi.declare(loaded)
    except AttributeError as error:
        raise LibraryError(f"{path} lacks a function of its ABI version: {error}") from None
    return loaded


def _load() -> None:
    global _loaded
    with _lock:
        if _loaded is not None:
            return
        failures = []
        for path in _candidates():
            try:
                _loaded = _open(path)
                return
            except (OSError, LibraryError) as error:
                failures.append(f"  {path}: {error}")
        if not os.environ.get(VARIABLE):
            failures.insert(0, f"  {VARIABLE}: not set")
            if not os.path.isdir(_FOLDER):
                failures.insert(1, f"  {_FOLDER}: the package contains no library")
        tried = "\n".join(failures)
        raise LibraryError(
            f"no usable libswitchback:\n{tried}\n"
            f"Set {VARIABLE} to the path of a libswitchback.so with ABI {_abi.VERSION_MAJOR}."
            f"{_abi.VERSION_MINOR} or later, or install the package with pip, which includes one."
        )


def _forget_lock_in_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock_in_child)
