# SPDX-License-Identifier: Apache-2.0
"""Owns the modes of a layer: what a caller must know of the library's table (src/core/modes.hpp).

A test of the library compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Mode(NamedTuple):
    """A row of the table."""

    number: int
    is_int8: bool  # forward and dX in any case, so that it rotates and takes a quantized weight
    of_rows: bool  # the codes of the weight have a scale for each row, else one
    int8_dw: bool  # dW may be an int8 product


_TABLE = {
    "standard": Mode(0, is_int8=False, of_rows=False, int8_dw=False),
    "rowwise": Mode(1, is_int8=True, of_rows=True, int8_dw=True),
    "rowwise_shared": Mode(5, is_int8=True, of_rows=True, int8_dw=True),
    "global": Mode(2, is_int8=True, of_rows=False, int8_dw=True),
    "global_mem_efficient": Mode(3, is_int8=True, of_rows=False, int8_dw=False),
    "auto": Mode(4, is_int8=False, of_rows=False, int8_dw=True),
}
# Layers keep codes of their input in any int8 mode if they are told to (mem_efficient), not by a mode.
MODES = {name: mode for name, mode in _TABLE.items() if name != "global_mem_efficient"}
MODES_OF_ROWS = tuple(name for name, mode in MODES.items() if mode.of_rows)


def names_where(has: Callable[[Mode], bool]) -> str:
    """"'rowwise', 'rowwise_shared' or 'global'": the modes with a property."""
    *others, last = (repr(name) for name, mode in MODES.items() if has(mode))
    return f"{', '.join(others)} or {last}"
