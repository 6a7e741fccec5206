# SPDX-License-Identifier: Apache-2.0
"""Files in the safetensors format: eight bytes with the length of a JSON header, the header, the data."""

from __future__ import annotations

import json
import math
import mmap
import os
import struct

import torch

from .._errors import InvalidArgument, Unsupported

_TYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
_LARGEST_HEADER = 100_000_000


def read(path, prefix: str = "") -> tuple[dict, dict]:
    """Reads a file: the tensors whose names begin with the prefix, by name, and the header's metadata.

    The file is mapped into memory. Writes to the tensors do not change the file.
    """
    path = os.fspath(path)
    with open(path, "rb") as file:
        length = os.fstat(file.fileno()).st_size
        start = file.read(8)
        count = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= count <= min(_LARGEST_HEADER, length - 8):
            raise InvalidArgument(
                f"{path} is not a safetensors file: it has {length} bytes, and its first 8 say that the "
                f"header has {count}"
            )
        try:
            header = json.loads(file.read(count))
        except ValueError as error:
            raise InvalidArgument(f"{path} is not a safetensors file: its header: {error}") from None
        # The mapping is private and writable, because torch warns about read-only memory.
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    if not isinstance(header, dict):
        raise InvalidArgument(f"{path} is not a safetensors file: its header is not a JSON object")
    metadata = header.pop("__metadata__", None) or {}
    tensors = {}
    for name, about in header.items():
        if name.startswith(prefix):
            tensors[name] = _tensor(memory, 8 + count, about, f"{path}: {name}")
    return tensors, metadata


def _tensor(memory, data: int, about, where: str):
    """The tensor that a header's entry `about` describes. `data`: offset of the data. `where`: for messages.
    """
    try:
        kind, shape = about["dtype"], [int(extent) for extent in about["shape"]]
        begin, end = (data + int(offset) for offset in about["data_offsets"])
    except (KeyError, TypeError, ValueError):
        raise InvalidArgument(f"{where}: the header describes it as {about!r}, which is not valid") from None
    dtype = getattr(torch, _TYPES.get(kind, ""), None)
    if dtype is None:
        raise Unsupported(f"{where}: its dtype {kind!r} is not supported")
    size, count = torch.empty((), dtype=dtype).element_size(), math.prod(shape)
    fits = data <= begin <= end <= len(memory) and end - begin == count * size
    if min(shape, default=0) < 0 or not fits:
        raise InvalidArgument(
            f"{where}: the header describes it as {about!r}, and there are {len(memory) - data} bytes of data"
        )
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    if begin % size:  # torch needs an offset that is a multiple of the element size
        memory, begin = bytearray(memory[begin:end]), 0
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=begin).reshape(shape)


def write(path, tensors: dict) -> None:
    """Writes a dictionary of tensors to a file. It appears, or replaces an old file, only when it is
    complete."""
    names = {getattr(torch, there): name for name, there in _TYPES.items() if hasattr(torch, there)}
    # Tensors with larger elements come first, so that the data of every tensor is aligned.
    order = sorted(tensors, key=lambda name: -tensors[name].element_size())
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name in order:
        tensor = tensors[name]
        if tensor.dtype not in names:
            raise Unsupported(f"{name} is {tensor.dtype}, which safetensors files do not support")
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = os.fspath(path)
    unfinished = f"{path}.{os.getpid()}.unfinished"
    try:
        with open(unfinished, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for name in order:
                if tensors[name].numel():
                    memory = tensors[name].detach().cpu().contiguous().reshape(-1)
                    file.write(memory.view(torch.uint8).numpy())
        os.replace(unfinished, path)
    except BaseException:
        if os.path.exists(unfinished):
            os.remove(unfinished)
        raise
