# SPDX-License-Identifier: Apache-2.0
"""The declarations of switchback.h for ctypes: constants, structs and prototypes."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

VERSION_MAJOR = 1
VERSION_MINOR = 0

F32, F16, BF16, S8, S32 = range(5)
FLOATS = (F32, F16, BF16)
DTYPE_NAMES = ("float32", "float16", "bfloat16", "int8", "int32")

ACTIVATIONS = {"gelu_tanh": 1, "gelu_erf": 2}

SCALE_PER_ROW, SCALE_GLOBAL = range(2)

WEIGHT_GRADIENTS = {"floating": 0, "int8_block": 1}

SAVE_NOTHING, SAVE_COPY, SAVE_BORROW, SAVE_CALLER = range(4)

# The value of cudaStreamLegacy. Other APIs pass a null stream for the legacy stream; this library refuses
# null.
LEGACY_STREAM = 1


class Matrix(ctypes.Structure):
    """The C struct switchback_matrix."""

    _fields_ = [
        ("data", c_void_p),
        ("dtype", c_int32),
        ("rows", c_int64),
        ("cols", c_int64),
        ("stride", c_int64),
    ]


class _Sized(ctypes.Structure):
    """A C struct whose first member is its own size."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


class ContextOptions(_Sized):
    """The C struct switchback_context_options."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("device", c_char_p),
        ("threads", c_int32),
        ("stream", c_void_p),
        ("isa", c_char_p),
        ("allocate", c_void_p),
        ("release", c_void_p),
        ("allocator_user", c_void_p),
        ("tune", c_char_p),
        ("tune_cache", c_char_p),
    ]


class ContextInfo(_Sized):
    """The C struct switchback_context_info."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("device", c_char_p),
        ("isa", c_char_p),
        ("threads", c_int32),
        ("workspace_bytes", c_size_t),
        ("tune_hits", c_int64),
        ("tune_misses", c_int64),
        ("tune_refused", c_int64),
    ]


class QuantizeArgs(_Sized):
    """The C struct switchback_quantize_args."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("x", Matrix),
        ("g", Matrix),
        ("activation", c_int32),
        ("rotation", c_int32),
        ("column_scales", c_void_p),
        ("q", Matrix),
        ("absmax", c_void_p),
        ("q_scale", c_int32),
        ("q_t_scale", c_int32),
        ("q_t", Matrix),
        ("absmax_t", c_void_p),
        ("block_rows", c_int32),
        ("accumulate", c_int32),
        ("column_sums", c_void_p),
        ("value", Matrix),
        ("rotated", Matrix),
        ("stochastic", c_int32),
        ("rounding_stream", c_uint32),
        ("rounding_step", c_uint32),
        ("rounding_seed", c_uint64),
        ("rounding_row0", c_int64),
    ]


class GemmArgs(_Sized):
    """The C struct switchback_gemm_args."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("a", Matrix),
        ("b", Matrix),
        ("d", Matrix),
        ("packed_b", c_void_p),
        ("absmax_a", c_void_p),
        ("absmax_b", c_void_p),
        ("absmax_b_count", c_int64),
        ("bias", c_void_p),
        ("bias_dtype", c_int32),
        ("groups", c_void_p),
        ("d_column_stride", c_int64),
        ("engine", c_char_p),
    ]


class BlockwiseGemmArgs(_Sized):
    """The C struct switchback_gemm_blockwise_args."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("a", Matrix),
        ("b", Matrix),
        ("d", Matrix),
        ("absmax_a", c_void_p),
        ("absmax_b", c_void_p),
        ("block_rows", c_int32),
        ("accumulate", c_int32),
        ("m", c_int64),
        ("engine", c_char_p),
    ]


class LinearOptions(_Sized):
    """The C struct switchback_linear_options."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("in_features", c_int64),
        ("out_features", c_int64),
        ("groups", c_int64),
        ("mode", c_int32),
        ("dtype", c_int32),
        ("engine", c_char_p),
        ("allow", c_uint32),
        ("activation", c_int32),
        ("overlap_dw", c_int32),
        ("dw", c_int32),
        ("dw_block_rows", c_int32),
        ("rotation", c_int32),
        ("transposed_weight", c_int32),
    ]


class KeptInput(_Sized):
    """The C struct switchback_kept_input."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("x", Matrix),
        ("absmax", c_void_p),
        ("in_blocks", c_int32),
    ]


class LinearGrads(_Sized):
    """The C struct switchback_linear_grads."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("g", Matrix),
        ("dx", Matrix),
        ("dw", Matrix),
        ("db", Matrix),
        ("accumulate", c_int32),
        ("y_activation", c_int32),
        ("y", Matrix),
        ("dx_of_activation", c_int32),
        ("stochastic", c_int32),
        ("rounding_stream", c_uint32),
        ("rounding_step", c_uint32),
        ("rounding_seed", c_uint64),
        ("rounding_row0", c_int64),
    ]


class LayerInfo(_Sized):
    """The C struct switchback_layer_info."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("saved_for_backward_bytes", c_size_t),
        ("cached_weight_bytes", c_size_t),
    ]


class Groups(_Sized):
    """The C struct switchback_groups."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("count", c_int32),
        ("on_device", c_int32),
        ("ends", c_void_p),
        ("rows_of", c_void_p),
        ("row_stride", c_int64),
        ("column_stride", c_int64),
        ("row_index", c_void_p),
    ]


class FragmentedLinearOptions(_Sized):
    """The C struct switchback_fragmented_linear_options."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("in_features", c_int64),
        ("out_features", c_int64),
        ("fragments", c_int64),
        ("rank", c_int64),
        ("mode", c_int32),
        ("dtype", c_int32),
        ("engine", c_char_p),
        ("allow", c_uint32),
    ]


class FragmentedWeights(_Sized):
    """The C struct switchback_fragmented_weights."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("weight", Matrix),
        ("selector", Matrix),
        ("down", Matrix),
        ("up", Matrix),
    ]


class FragmentedLinearGrads(_Sized):
    """The C struct switchback_fragmented_linear_grads."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("g", Matrix),
        ("dx", Matrix),
        ("dweight", Matrix),
        ("dselector", Matrix),
        ("ddown", Matrix),
        ("dup", Matrix),
        ("accumulate", c_int32),
    ]


# Handles, structs and arrays are all declared as addresses (void*): byref() and plain integers both work,
# without a cast.
_P = c_void_p
_FAILING = {
    "switchback_context_create": (_P, POINTER(c_void_p)),
    "switchback_context_get_info": (_P, _P),
    "switchback_context_set_stream": (_P, _P),
    "switchback_quantize": (_P, _P),
    "switchback_dequantize_rowwise": (_P, _P, _P, _P),
    "switchback_fingerprint": (_P, _P, _P),
    "switchback_packed_weight_create": (POINTER(c_void_p),),
    "switchback_pack_weight": (_P, _P, c_int64, _P, c_char_p),
    "switchback_packed_weight_bytes": (_P, POINTER(c_size_t)),
    "switchback_gemm": (_P, _P),
    "switchback_gemm_blockwise": (_P, _P),
    "switchback_linear_create": (_P, _P, POINTER(c_void_p)),
    "switchback_linear_set_weight": (_P, _P, _P),
    "switchback_linear_weight_updated": (_P,),
    "switchback_linear_weight_may_have_changed": (_P,),
    "switchback_linear_set_quantized_weight": (_P, _P, _P, c_int64, _P),
    "switchback_linear_share": (_P, _P, POINTER(c_void_p)),
    "switchback_linear_forward": (_P, _P, _P, c_int32, _P),
    "switchback_linear_backward": (_P, _P, _P),
    "switchback_linear_forward_groups": (_P, _P, _P, _P, c_int32),
    "switchback_linear_backward_groups": (_P, _P, _P, _P),
    "switchback_linear_get_info": (_P, _P),
    "switchback_combine": (_P, _P, _P, _P, _P),
    "switchback_fragmented_linear_create": (_P, _P, POINTER(c_void_p)),
    "switchback_fragmented_linear_set_weights": (_P, _P),
    "switchback_fragmented_linear_prepare_for_eval": (_P,),
    "switchback_fragmented_linear_forward": (_P, _P, _P, c_int32),
    "switchback_fragmented_linear_forward_hard": (_P, _P, _P),
    "switchback_fragmented_linear_backward": (_P, _P, _P),
    "switchback_fragmented_linear_get_info": (_P, _P),
}
_OTHERS = {
    "switchback_abi_version": (c_uint32, ()),
    "switchback_version_string": (c_char_p, ()),
    "switchback_last_error": (c_char_p, ()),
    "switchback_context_destroy": (None, (_P,)),
    "switchback_packed_weight_destroy": (None, (_P,)),
    "switchback_linear_destroy": (None, (_P,)),
    "switchback_fragmented_linear_destroy": (None, (_P,)),
}


def declare(library) -> None:
    """Sets the prototype of every function. AttributeError names a function that the library lacks."""
    prototypes = {name: (c_int32, arguments) for name, arguments in _FAILING.items()}
    prototypes.update(_OTHERS)
    for name, (result, arguments) in prototypes.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = list(arguments)
