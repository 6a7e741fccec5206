# SPDX-License-Identifier: Apache-2.0
"""Controls whether the C library returns freed memory to the system."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # from glibc's malloc.h
_LARGE = (1 << 30, 32 << 20)  # bytes; some glibc versions accept at most the second number


def keep_freed_memory() -> bool:
    """From now on the process keeps freed CPU memory and uses it for later allocations.

    By default glibc returns large blocks to the system and requests them again, and the system clears
    each page. A training step frees and allocates the same tensors again and again. There this can
    take a tenth of the time (docs/pytorch.md, "The allocator"). The call helps other modules as well as
    switchback's layers. The process then keeps its peak memory. The call cannot be undone.

    Returns whether it worked: only glibc has this setting. Allocators that replace it (jemalloc,
    tcmalloc) have their own settings.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    if not any(set_option(_MMAP_THRESHOLD, size) for size in _LARGE):
        return False
    return bool(set_option(_TRIM_THRESHOLD, -1))
