# SPDX-License-Identifier: Apache-2.0
"""The contexts of the C library: one per device and process, created at first use, for one thread at a time.

If several threads call at once on the CPU, extra contexts are created. A call uses a free context.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import warnings
import weakref

from . import _abi, _cuda_memory
from ._errors import Error
from ._library import check, library


class Context:
    """A switchback_context of the C library with its lock.

    To call the library with it, or with a layer created on it, acquire `lock` and then call `enter`. A
    `retired` context stays usable while references to it exist, and is destroyed with the last
    reference. New callers get another context. Its extra contexts serve calls that would otherwise
    wait. They live as long as this context.
    """

    def __init__(self, device: str, threads: int, torch_threads: int | None = None, of=None):
        # torch is always loaded here for a CUDA device, because only torch's tensors can be on one.
        self.device_index = -1 if device == "cpu" else int(device.rpartition(":")[2])
        members = {}
        if device != "cpu":
            members = _cuda_memory.options_for(self.device_index)
            members["stream"] = _current_stream(self.device_index)
        options = _abi.ContextOptions(device=device.encode(), threads=threads, **members)
        out = ctypes.c_void_p()
        check(library().switchback_context_create(ctypes.byref(options), ctypes.byref(out)))
        self.pointer = out.value
        self.device = device
        self.lock = threading.RLock()
        self.retired = of is not None and of.retired
        self._of: Context | None = of  # the context that created this one as an extra context
        self.is_extra = of is not None
        self.torch_threads = torch_threads  # torch's number of threads, if the context follows it
        self._threads = threads
        self._extras: list[Context] = []
        self._pid = os.getpid()
        self.stream = options.stream  # the current CUDA stream; None on the CPU
        self._dead_layers: list[tuple[str, int]] = []
        # The context is not destroyed at exit: layers and streams may be gone by then, and the system frees
        # everything.
        weakref.finalize(self, _destroy, self.pointer, self._pid, self._dead_layers).atexit = False

    def is_current(self) -> bool:
        """Whether calls should still use this context: it is not retired, and torch's thread count is
        unchanged."""
        if self.torch_threads is not None and _torch_threads_changed(self.torch_threads):
            with _registry_lock:
                if _contexts.get(self.device) is self:
                    _retire(self.device)
        return not self.retired

    def enter(self) -> None:
        """Makes later calls queue their work on the caller's current stream. The caller holds the lock."""
        if self.stream is not None:
            stream = _current_stream(self.device_index)
            if stream != self.stream:
                check(library().switchback_context_set_stream(self.pointer, stream))
                self.stream = stream

    def take(self) -> Context:
        """Returns this context, or a free one if another thread uses this one. Its lock is held on return."""
        return self if self.lock.acquire(False) else (self._of or self)._take_other()

    def _take_other(self) -> Context:
        """Returns this context or an extra one: the first that is free or becomes free. Its lock is held on
        return."""
        if self.stream is not None:
            # Calls on a device return once they are queued, so they wait for each other only briefly.
            self.lock.acquire()
            return self
        while True:
            for context in (self, *self._extras):
                if context.lock.acquire(False):
                    return context
            made = self._make_extra()
            if made is not None:
                return made
            for context in (self, *self._extras):
                if context.lock.acquire(timeout=0.001):
                    return context

    def _make_extra(self) -> Context | None:
        """Returns a new extra context with its lock held; None if there are enough, or if creating it fails.
        """
        with _registry_lock:
            if len(self._extras) >= MOST_EXTRAS:
                return None
            try:
                made = Context(self.device, self._threads, self.torch_threads, self)
            except Error:  # out of threads or memory: the call waits instead
                return None
            made.lock.acquire()
            self._extras.append(made)
        return made

    def destroy_layer(self, layer: int, function: str = "switchback_linear_destroy") -> None:
        """Destroys a layer for finalizers, which may run at any time and in any thread: never waits for the
        lock."""
        if os.getpid() != self._pid:
            return  # the layer belongs to the parent process
        self._dead_layers.append((function, layer))
        if self.lock.acquire(blocking=False):
            try:
                self.destroy_dead_layers()
            finally:
                self.lock.release()

    def destroy_dead_layers(self) -> None:
        """Destroys the layers that finalizers have listed. The caller holds the lock."""
        _destroy_layers(self._dead_layers)

    def threads(self) -> int:
        """The number of CPU threads in use."""
        return self._info().threads

    def isa(self) -> str:
        """The instruction set in use."""
        return self._info().isa.decode()

    def _info(self) -> _abi.ContextInfo:
        """Information on this context or an extra one; both have the same. Its texts live as long as the
        contexts."""
        info = _abi.ContextInfo()
        context = self.take()
        try:
            check(library().switchback_context_get_info(context.pointer, ctypes.byref(info)))
        finally:
            context.lock.release()
        return info


# The largest number of extra contexts per device. Each has its own workspace, as large as its largest call
# needed.
MOST_EXTRAS = 7


def context_for(device: str) -> Context:
    """The context of the device "cpu" or "cuda:N", created at first use."""
    global _used
    found = _contexts.get(device)
    if found is None or not found.is_current():
        with _registry_lock:
            found = _contexts.get(device)
            if found is None:
                if _forked_after_use:
                    _spare_torch_a_hang()
                _used = True
                found = _contexts[device] = Context(device, *_threads_for(device))
    return found


def set_num_threads(count: int) -> None:
    """Sets the number of CPU threads of later calls, in every Python thread. 0: all cores this process may
    use.

    Until this is called, the number follows torch.get_num_threads(). If torch is not loaded, all cores
    are used. Results do not depend on it.
    """
    global _num_threads
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ValueError(f"set_num_threads: count = {count!r}; it must be an integer, at least 0")
    if _forked_after_use and count != 1:
        raise Error(
            f"set_num_threads: count = {count} in a process forked from one that had used switchback; "
            "OpenMP threads do not survive a fork, so it must be 1. Start processes with the "
            "'spawn' or 'forkserver' method to use more"
        )
    with _registry_lock:
        _num_threads = count
        _retire("cpu")


def get_num_threads() -> int:
    """The number of CPU threads that calls use."""
    return context_for("cpu").threads()


_registry_lock = threading.Lock()
_contexts: dict[str, Context] = {}
_num_threads: int | None = None
_used = False
_forked_after_use = False


def _threads_for(device: str) -> tuple[int, int | None]:
    """The number of threads for a new context, and torch's number if the context follows it (else None)."""
    if device != "cpu":
        return 0, None
    if _num_threads is not None:
        return _num_threads, None
    torch = sys.modules.get("torch")
    if torch is None:
        return 0, None
    _seen.threads = torch.get_num_threads()
    return _seen.threads, _seen.threads


# What torch.get_num_threads() last was in each Python thread: torch has one number per Python thread. The
# context follows the Python thread that changed its number last. So two threads with different numbers do
# not create contexts alternately.
_seen = threading.local()


def _torch_threads_changed(in_use: int) -> bool:
    """Whether torch's thread count in this thread changed since the last call, to a number other than
    `in_use`."""
    now = sys.modules["torch"].get_num_threads()
    before = getattr(_seen, "threads", None)
    if now == before:
        return False
    _seen.threads = now
    return now != in_use


def _retire(device: str) -> None:
    context = _contexts.pop(device, None)
    if context is not None:
        for each in (context, *context._extras):
            each.retired = True


def _current_stream(device_index: int) -> int:
    """torch's current stream. torch is always loaded here, because only torch's tensors can be on a CUDA
    device."""
    # Not torch.cuda.current_stream, which would create a Python object in each call.
    return sys.modules["torch"]._C._cuda_getCurrentRawStream(device_index) or _abi.LEGACY_STREAM


def _destroy_layers(layers: list[tuple[str, int]]) -> None:
    while layers:
        function, layer = layers.pop()
        getattr(library(), function)(layer)


def _destroy(pointer: int, pid: int, dead_layers: list[tuple[str, int]]) -> None:
    if os.getpid() == pid:
        _destroy_layers(dead_layers)
        library().switchback_context_destroy(pointer)


def _after_fork_in_child() -> None:
    # A forked child has none of the threads, locks and streams of its parent's contexts, so it does not use
    # these contexts. It uses one thread: OpenMP's workers stayed with the parent too, and waiting for them
    # would never end.
    global _registry_lock, _num_threads, _forked_after_use
    _registry_lock = threading.Lock()
    _forked_after_use = _used
    _num_threads = 1
    for device in list(_contexts):
        _retire(device)


def _spare_torch_a_hang() -> None:
    """Sets torch to one thread in a forked child, where it would wait for OpenMP's threads forever."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() > 1:
        warnings.warn(
            "switchback is used in a process forked from one that had used it. OpenMP's threads stayed "
            "with the parent, and torch would wait for them: torch.set_num_threads(1) was called. Start "
            "processes with the 'spawn' or 'forkserver' method to use more threads",
            RuntimeWarning,
            stacklevel=2,
        )
        torch.set_num_threads(1)


os.register_at_fork(after_in_child=_after_fork_in_child)
