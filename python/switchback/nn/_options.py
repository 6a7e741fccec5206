# SPDX-License-Identifier: Apache-2.0
"""The options of a layer: one immutable value that modules, library layers and operators share."""

from __future__ import annotations

import dataclasses
import functools

from .. import _abi
from .._errors import InvalidArgument
from .._modes import MODES, names_where, one_of


ROUNDINGS = ("nearest", "stochastic")
ROTATIONS = (4, 16, 64, 256, 1024)  # the group sizes of a rotation
BLOCK_ROWS = (128, 256, 512, 1024)  # number of rows in a block of codes for int8 dW


@dataclasses.dataclass(frozen=True)
class LayerOptions:
    """The options of a library layer, without its sizes and dtype.

    A new option needs a field here, with the library's default, and an entry in `members`. Operators of
    torch accept all options as one string, `text`.
    """

    mode: str = "rowwise"
    # Applied to x first ("" for none). This and the options below are only for linear layers.
    activation: str = ""
    rotation: int = 0
    dw: str = "floating"
    dw_block_rows: int = 256
    # How gradients are rounded to codes: "nearest", or "stochastic" with random bits of this seed.
    rounding: str = "nearest"
    seed: int = 0
    transposed: int = 0  # 1: the weight is [in, out]; only linear layers

    def __post_init__(self):
        if self.mode not in MODES:
            allowed = ", ".join(repr(name) for name in MODES)
            raise InvalidArgument(f"mode = {self.mode!r}; it must be one of {allowed}")
        if self.activation and self.activation not in _abi.ACTIVATIONS:
            allowed = ", ".join(repr(name) for name in _abi.ACTIVATIONS)
            raise InvalidArgument(
                f"activation = {self.activation!r}; it must be one of {allowed}, or empty"
            )
        if self.dw not in _abi.WEIGHT_GRADIENTS:
            allowed = ", ".join(repr(name) for name in _abi.WEIGHT_GRADIENTS)
            raise InvalidArgument(f"dw = {self.dw!r}; it must be one of {allowed}")
        if self.rounding not in ROUNDINGS:
            allowed = " or ".join(repr(name) for name in ROUNDINGS)
            raise InvalidArgument(f"rounding = {self.rounding!r}; it must be {allowed}")
        if not 0 <= self.seed < 2**64:
            raise InvalidArgument(f"seed = {self.seed}; it must be from 0 to 2**64 - 1")
        if self.transposed not in (0, 1):
            raise InvalidArgument(f"transposed = {self.transposed}; it must be 0 or 1")

    def members(self) -> dict:
        """The options as members of the C library's option structs."""
        members = {"mode": MODES[self.mode].number}
        if self.activation:
            members["activation"] = _abi.ACTIVATIONS[self.activation]
        if self.rotation:
            members["rotation"] = self.rotation
        if self.dw != "floating":
            members["dw"] = _abi.WEIGHT_GRADIENTS[self.dw]
            members["dw_block_rows"] = self.dw_block_rows
        if self.reads_transposed:
            members["transposed_weight"] = 1
        return members

    @property
    def reads_transposed(self) -> bool:
        """Whether the library reads a weight [in, out] in place, which it cannot do with a rotation."""
        return bool(self.transposed) and not self.rotation

    @property
    def keeps_blocks(self) -> bool:
        """Whether a training forward keeps codes of blocks of x for dw, instead of x."""
        return self.dw == "int8_block" and MODES[self.mode].is_int8

    @property
    def is_stochastic(self) -> bool:
        """Whether gradients are rounded to codes stochastically."""
        return self.rounding == "stochastic"

    def reads_x(self, wants_dx: bool, wants_dw: bool) -> bool:
        """Whether a backward reads x: dw does, and so does dx if the layer applies an activation to x."""
        return wants_dw or (wants_dx and bool(self.activation))

    @property
    def text(self) -> str:
        """The mode and the options that differ from their defaults, as text such as "mode=global"."""
        said = [
            f"{field.name}={getattr(self, field.name)}"
            for field in dataclasses.fields(self)
            if field.name == "mode" or getattr(self, field.name) != field.default
        ]
        return ",".join(said)

    @classmethod
    @functools.lru_cache(maxsize=256)
    def parse(cls, text: str) -> LayerOptions:
        """Parses the text form of the options. Raises InvalidArgument if the text is not valid."""
        kinds = {field.name: type(field.default) for field in dataclasses.fields(cls)}
        values = {}
        for part in text.split(","):
            name, sign, value = part.partition("=")
            if not sign or name not in kinds:
                raise InvalidArgument(
                    f"options = {text!r}; it must be names of {sorted(kinds)} with values, as in "
                    "'mode=rowwise'"
                )
            values[name] = kinds[name](value)
        return cls(**values)


def check_rotation(module: str, rotation: int, in_features: int, mode: str) -> None:
    """Raises ValueError unless this rotation is possible. `module`: the name of the module's class, for the
    message."""
    if rotation not in (0, *ROTATIONS):
        raise ValueError(f"{module}: rotation = {rotation!r}; it must be 0, {one_of(ROTATIONS)}")
    if rotation and in_features % rotation:
        raise ValueError(
            f"{module}: in_features = {in_features}; it must be a multiple of rotation, {rotation}"
        )
    if rotation and not MODES[mode].is_int8:
        raise ValueError(
            f"{module}: rotation = {rotation} in mode {mode!r}; it needs mode "
            f"{names_where(lambda each: each.is_int8)}"
        )


def check_dw(module: str, dw: str, dw_block_rows: int, mode: str) -> None:
    """Raises ValueError unless the weight gradient can be computed like this. `module`: the name of the
    module's class, for the message."""
    if dw not in _abi.WEIGHT_GRADIENTS:
        raise ValueError(f"{module}: dw = {dw!r}; it must be 'floating' or 'int8_block'")
    if dw_block_rows not in BLOCK_ROWS:
        raise ValueError(
            f"{module}: dw_block_rows = {dw_block_rows!r}; it must be {one_of(BLOCK_ROWS)}"
        )
    if dw == "int8_block" and not MODES[mode].int8_dw:
        raise ValueError(
            f"{module}: dw = 'int8_block' in mode {mode!r}; it needs mode "
            f"{names_where(lambda each: each.int8_dw)}"
        )
