# SPDX-License-Identifier: Apache-2.0
"""The modes of a layer: the part of the library's table (src/core/modes.hpp) that callers need.

A test of the library compares the two tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Mode(NamedTuple):
    """A row of the library's table of modes."""

    number: int
    is_int8: bool  # forward and dX are always int8: it accepts rotations and a quantized weight
    of_rows: bool  # the weight's codes have one scale per row; else one scale for the weight
    int8_dw: bool  # dW may be an int8 product


_TABLE = {
    "standard": Mode(0, is_int8=False, of_rows=False, int8_dw=False),
    "rowwise": Mode(1, is_int8=True, of_rows=True, int8_dw=True),
    "rowwise_shared": Mode(5, is_int8=True, of_rows=True, int8_dw=True),
    "global": Mode(2, is_int8=True, of_rows=False, int8_dw=True),
    "global_mem_efficient": Mode(3, is_int8=True, of_rows=False, int8_dw=False),
    "auto": Mode(4, is_int8=False, of_rows=False, int8_dw=True),
}
# Without global_mem_efficient: in Python, that is the argument mem_efficient, for any int8 mode.
MODES = {name: mode for name, mode in _TABLE.items() if name != "global_mem_efficient"}


def names_where(has: Callable[[Mode], bool]) -> str:
    """The names of the modes that have a property, as text: "'rowwise', 'rowwise_shared' or 'global'"."""
    return one_of(repr(name) for name, mode in MODES.items() if has(mode))


def one_of(values: Iterable) -> str:
    """Joins two or more values to a text like "4, 16 or 64"."""
    *others, last = map(str, values)
    return f"{', '.join(others)} or {last}"
