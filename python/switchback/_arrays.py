# SPDX-License-Identifier: Apache-2.0
"""One interface for NumPy arrays and torch tensors, which reads operands and creates outputs."""

from __future__ import annotations

import ctypes
import sys

import numpy

from . import _abi
from ._context import Context, context_for
from ._errors import InvalidArgument

_CODES = {name: code for code, name in enumerate(_abi.DTYPE_NAMES)}


class Vector:
    """Contiguous elements at `address`, and the array that owns their memory."""

    __slots__ = ("address", "array", "count")

    def __init__(self, array, address: int, count: int):
        self.array = array
        self.address = address
        self.count = count


class Operand:
    """A matrix for the library: the struct `matrix`, its `address`, and the array that owns the elements."""

    __slots__ = ("address", "array", "matrix")

    def __init__(self, array, pointer: int, dtype: int, rows: int, cols: int, stride: int):
        self.array = array
        self.matrix = _abi.Matrix(pointer, dtype, rows, cols, stride)
        self.address = ctypes.addressof(self.matrix)


class _NumpyArrays:
    """The NumPy functions that ops.py uses. bfloat16 is any dtype of that name, such as that of ml_dtypes."""

    def __init__(self, op: str):
        self.op = op
        self.context: Context = context_for("cpu")
        self._bfloat16 = None

    def code_of(self, array, name: str) -> int | None:
        if not isinstance(array, numpy.ndarray):
            raise TypeError(
                f"{self.op}: {name} is a {type(array).__name__}; it must be a numpy.ndarray, as x is"
            )
        return self.code_of_dtype(array.dtype)

    def code_of_dtype(self, dtype) -> int | None:
        dtype = numpy.dtype(dtype)
        if dtype.name == "bfloat16":
            self._bfloat16 = dtype
        return _CODES.get(dtype.name) if dtype.isnative else None

    def dtype_of(self, code: int):
        return _abi.DTYPE_NAMES[code]

    def cast(self, array, name: str, code: int):
        self.code_of(array, name)
        return array.astype(_abi.DTYPE_NAMES[code], copy=False)

    def matrix(self, array, code: int) -> Operand:
        rows, cols = array.shape
        size = array.itemsize
        step, element = array.strides
        if rows <= 1 or cols == 0:
            step = cols * size
        if (cols > 1 and element != size) or step % size != 0 or step < cols * size:
            array = numpy.ascontiguousarray(array)
            step = cols * size
        return Operand(array, array.ctypes.data, code, rows, cols, step // size)

    def vector(self, array) -> Vector:
        array = numpy.ascontiguousarray(array)
        return Vector(array, array.ctypes.data, array.size)

    def address(self, array) -> int:
        """The address of the elements of an array that empty() returned."""
        return array.ctypes.data

    def empty(self, shape: tuple[int, ...], code: int):
        dtype = self._bfloat16 if code == _abi.BF16 else _abi.DTYPE_NAMES[code]
        if dtype is None:
            raise TypeError(
                f"{self.op}: NumPy does not have bfloat16; pass dtype=ml_dtypes.bfloat16"
            )
        return numpy.empty(shape, dtype)


class _TorchArrays:
    """The torch functions that ops.py uses."""

    def __init__(self, op: str, device):
        from . import _tensors

        self.op = op
        self._device = device
        self._tensors = _tensors
        self.context: Context = _tensors.context_of(device, op, "the first argument")

    def code_of(self, array, name: str) -> int | None:
        self._tensors.memory_of(array, self.op, name)
        if array.device != self._device:
            raise InvalidArgument(
                f"{self.op}: {name} is on device {array.device} and the first argument on "
                f"{self._device}; move it with .to('{self._device}')"
            )
        return self._tensors.DTYPES.get(array.dtype)

    def code_of_dtype(self, dtype) -> int | None:
        return self._tensors.DTYPES.get(dtype)

    def dtype_of(self, code: int):
        import torch

        return getattr(torch, _abi.DTYPE_NAMES[code])

    def cast(self, array, name: str, code: int):
        self.code_of(array, name)
        return array.to(self.dtype_of(code))

    def matrix(self, array, code: int) -> Operand:
        cols = array.shape[1]
        array = self._memory(array)
        array, rows, stride = self._tensors.as_rows(array, cols) if cols else (array, len(array), 0)
        return Operand(array, array.data_ptr(), code, rows, cols, stride)

    def vector(self, array) -> Vector:
        array = self._memory(array).contiguous()
        return Vector(array, array.data_ptr(), array.numel())

    def _memory(self, array):
        array = array.detach() if array.requires_grad else array
        array = self._tensors.memory_of(array, self.op, "an array")
        self._tensors.check_storage(array, self.op, "an array")
        return array

    def address(self, array) -> int:
        # In fake tensor mode a new tensor has no memory; then memory_of raises TypeError.
        return self._tensors.memory_of(array, self.op, "output").data_ptr()

    def empty(self, shape: tuple[int, ...], code: int):
        import torch

        return torch.empty(shape, dtype=self.dtype_of(code), device=self._device)


def arrays_like(array, op: str):
    """The functions for the kind (NumPy or torch) and the device of an operation's first argument."""
    if isinstance(array, numpy.ndarray):
        return _NumpyArrays(op)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _TorchArrays(op, array.device)
    raise TypeError(
        f"{op}: the first argument is a {type(array).__name__}; it must be a numpy.ndarray or a "
        "torch.Tensor"
    )
