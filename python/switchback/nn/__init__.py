# SPDX-License-Identifier: Apache-2.0
"""PyTorch layers whose products the C library computes. They need torch 1.13 or later."""

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "switchback.nn needs PyTorch 1.13 or later, which this Python does not have: pip install torch",
        name=error.name,
    ) from error

from .. import _tensors, ops
from ._attention import SwitchBackMultiheadAttention
from ._dispatch import dispatch_path
from ._experts import SwitchBackExperts, replace_experts
from ._fragmented import FragmentedLinear
from ._gelu import GELU
from ._grouped import SwitchBackGroupedLinear
from ._joined import fuse_qkv
from ._mlp import SwitchBackMLP
from ._quantize import SwitchBackConfig, quantize_
from ._replace import prepare_for_eval, replace_gelu, replace_linear
from ._rules import reuse_weight_codes
from ._sharded import shard_int8
from .linear import (
    StandardLinear,
    StandardLinearFunction,
    SwitchBackLinear,
    SwitchBackLinearBnb,
    SwitchBackLinearGlobal,
    SwitchBackLinearGlobalMemEfficient,
    SwitchBackLinearVectorwise,
)

if _tensors.HAS_OPERATORS:
    from . import _operators  # noqa: F401, defines the operators

    ops._operators, ops._needs_operator = torch.ops.switchback, _tensors.needs_operator

if torch.distributed.is_available():
    from ._parallel import SwitchBackColumnParallel, SwitchBackRowParallel  # noqa: F401

__all__ = [
    "FragmentedLinear",
    "GELU",
    "StandardLinear",
    "StandardLinearFunction",
    "SwitchBackConfig",
    "SwitchBackExperts",
    "SwitchBackGroupedLinear",
    "SwitchBackLinear",
    "SwitchBackLinearBnb",
    "SwitchBackLinearGlobal",
    "SwitchBackLinearGlobalMemEfficient",
    "SwitchBackLinearVectorwise",
    "SwitchBackMLP",
    "SwitchBackMultiheadAttention",
    "dispatch_path",
    "fuse_qkv",
    "prepare_for_eval",
    "quantize_",
    "replace_experts",
    "replace_gelu",
    "replace_linear",
    "reuse_weight_codes",
    "shard_int8",
]
