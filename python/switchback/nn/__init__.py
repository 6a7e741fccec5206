# SPDX-License-Identifier: Apache-2.0
"""PyTorch layers on the library. They need torch 1.13 or later."""

from ._layer import reuse_weight_codes
from ._replace import replace_linear
from .linear import (
    StandardLinear,
    SwitchBackLinear,
    SwitchBackLinearGlobal,
    SwitchBackLinearGlobalMemEfficient,
    SwitchBackLinearVectorwise,
)

__all__ = [
    "StandardLinear",
    "SwitchBackLinear",
    "SwitchBackLinearGlobal",
    "SwitchBackLinearGlobalMemEfficient",
    "SwitchBackLinearVectorwise",
    "replace_linear",
    "reuse_weight_codes",
]
