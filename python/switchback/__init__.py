# SPDX-License-Identifier: Apache-2.0
"""int8 linear layers (SwitchBack): kernels for NumPy and torch. The PyTorch layers are in switchback.nn.

Importing this package does not import torch or load the C library. Both are loaded at first use.
"""

from __future__ import annotations

import importlib

from ._context import get_num_threads, set_num_threads
from ._errors import (
    DeviceError,
    Error,
    InternalError,
    InvalidArgument,
    InvalidState,
    IoError,
    LibraryError,
    OutOfMemory,
    Unsupported,
)
from ._library import abi_version, library_path, library_version
from ._memory import keep_freed_memory
from ._version import __version__

_OPS = (
    "PackedWeight",
    "activation_backward",
    "activation_backward_quantize",
    "activation_forward",
    "activation_forward_quantize",
    "dequantize_rowwise",
    "gemm_blockwise",
    "gemm_dequantize",
    "gemm_s8s8s32",
    "int8_matmul_mixed_dequantize",
    "int8_matmul_rowwise_dequantize",
    "quantize_blockwise_transpose",
    "quantize_columnwise_and_transpose",
    "quantize_columnwise_transpose",
    "quantize_global",
    "quantize_global_transpose",
    "quantize_rowwise",
    "quantize_rowwise_scaled",
    "rotate",
    "rotate_quantize",
)
_LAYERS = (
    "StandardLinear",
    "StandardLinearFunction",
    "SwitchBackExperts",
    "SwitchBackGroupedLinear",
    "SwitchBackLinear",
    "SwitchBackLinearBnb",
    "SwitchBackLinearGlobal",
    "SwitchBackLinearGlobalMemEfficient",
    "SwitchBackLinearVectorwise",
    "SwitchBackMultiheadAttention",
    "prepare_for_eval",
    "replace_experts",
    "replace_linear",
    "reuse_weight_codes",
)

__all__ = [
    "DeviceError",
    "Error",
    "InternalError",
    "InvalidArgument",
    "InvalidState",
    "IoError",
    "LibraryError",
    "OutOfMemory",
    "Unsupported",
    "__version__",
    "abi_version",
    "get_num_threads",
    "keep_freed_memory",
    "library_path",
    "library_version",
    "nn",
    "ops",
    "set_num_threads",
    *_OPS,
    *_LAYERS,
]


def __getattr__(name: str):
    if name in ("nn", "ops"):
        return importlib.import_module("." + name, __name__)
    if name in _OPS or name in _LAYERS:
        found = getattr(importlib.import_module(".ops" if name in _OPS else ".nn", __name__), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted(set(globals()) | set(__all__))
