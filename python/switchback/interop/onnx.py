# SPDX-License-Identifier: Apache-2.0
"""Exports switchback layers to ONNX: torch.onnx.export(..., dynamo=True,
custom_translation_table=translations()).

A layer becomes standard operators: codes of x with a scale per row (Abs, ReduceMax, Div, Round),
MatMulInteger with codes of the weight, and the scales. Integer sums are exact and the rest is float32
in the library's order, so a runtime that follows the standard computes the layer's bits. Only rows
with NaN or Inf differ. The codes of a prepared layer are constants of the model.
"""

from __future__ import annotations

import torch
from onnxscript import opset18 as op

from .. import nn as _layers  # noqa: F401, defines the operators
from .._errors import Unsupported
from ..nn._options import LayerOptions

_FLOAT, _INT8 = 1, 3  # values of onnx.TensorProto
_C = float(torch.tensor(1.0, dtype=torch.float64).div(127 * 127).to(torch.float32))


def translations() -> dict:
    """A table from the torch operators of layers to functions that express them in ONNX."""
    return {
        torch.ops.switchback.linear.default: _linear,
        torch.ops.switchback.linear_prepared.default: _linear_prepared,
    }


def _number(value: float):
    return op.Constant(value_float=value)


def _quantized(x, axes):
    """Quantizes a float32 tensor with ONNX operators: codes and absmax, with one scale along the axes."""
    absmax = op.ReduceMax(op.Abs(x), op.Constant(value_ints=axes), keepdims=1)
    zero = op.Equal(absmax, _number(0.0))
    scaled = op.Mul(_number(127.0), op.Div(x, op.Where(zero, _number(1.0), absmax)))
    return op.Cast(op.Round(scaled), to=_INT8), absmax


def _product(x, codes, absmax, bias):
    q, scale = _quantized(op.Cast(x, to=_FLOAT), [-1])
    sums = op.Cast(op.MatMulInteger(q, op.Transpose(codes, perm=[1, 0])), to=_FLOAT)
    y = op.Mul(absmax, op.Mul(scale, op.Mul(sums, _number(_C))))
    if bias is not None:
        y = op.Add(y, op.Cast(bias, to=_FLOAT))
    return op.CastLike(y, x)


def _linear_prepared(x, codes, absmax, bias, options):
    _checked(options)
    return _product(x, codes, absmax, bias)


def _linear(x, weight, bias, options):
    mode = _checked(options)
    if LayerOptions.parse(options).transposed:
        weight = op.Transpose(weight, perm=[1, 0])
    weight = op.Cast(op.CastLike(weight, x), to=_FLOAT)
    codes, absmax = _quantized(weight, [1] if mode == "rowwise" else [0, 1])
    return _product(x, codes, op.Reshape(absmax, op.Constant(value_ints=[-1])), bias)


def _checked(options: str) -> str:
    known = LayerOptions.parse(options)
    if known.mode not in ("rowwise", "global") or known.activation or known.rotation:
        raise Unsupported(
            f"switchback.interop.onnx: a layer with {options}; only layers in the modes 'rowwise' and "
            "'global' can be exported, without a fused activation and without a rotation"
        )
    return known.mode
