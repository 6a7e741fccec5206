# SPDX-License-Identifier: Apache-2.0
"""What the C library does with memory that is freed."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_LARGE = (1 << 30, 32 << 20)  # bytes; some versions take no more than the second


def keep_freed_memory() -> bool:
    """From now on the process keeps the memory of the CPU that it frees, for what it allocates next.

    glibc gives large pieces back to the system and asks for them again, and the system clears each
    page. In a training step, which frees and allocates the same tensors again and again, that can take
    a tenth of the time (docs/pytorch.md, "Speed"). Other modules gain as layers of switchback do. The
    process then holds as much memory as it has needed at most. There is no way back.

    Returns whether the C library could be told; only glibc's can. Allocators that replace it (jemalloc,
    tcmalloc) have their own settings.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    if not any(set_option(_MMAP_THRESHOLD, size) for size in _LARGE):
        return False
    return bool(set_option(_TRIM_THRESHOLD, -1))
