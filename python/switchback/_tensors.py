# SPDX-License-Identifier: Apache-2.0
"""torch tensors as memory for the library: dtypes, devices, rows. Refuses tensors without memory."""

from __future__ import annotations

import re

import torch
from torch.autograd import forward_ad

from . import _abi
from ._context import Context, context_for
from ._errors import InvalidArgument, Unsupported

DTYPES = {
    torch.float32: _abi.F32,
    torch.float16: _abi.F16,
    torch.bfloat16: _abi.BF16,
    torch.int8: _abi.S8,
    torch.int32: _abi.S32,
}
FLOATS = frozenset((torch.float32, torch.float16, torch.bfloat16))

TORCH_VERSION = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])

# Whether torch has what custom operators need. Tracers, compilers, and tensors without their own memory,
# need the operators.
HAS_OPERATORS = hasattr(torch.library, "register_autograd")

in_transform = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)

# Whether a tensor was created in a transform of torch.func, which may have ended since.
is_wrapped = getattr(
    getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", lambda _tensor: False
)

PLAIN_TYPES = torch.Tensor, torch.nn.Parameter
_NO_DISPATCH = torch.Tensor.__torch_dispatch__


def memory_of(tensor, op: str, name: str) -> torch.Tensor:
    """Returns `tensor`, or a copy of its values, as a strided tensor whose elements are in memory.

    Raises TypeError for tensors without their own memory: sparse and nested tensors, a tracer's fake tensors,
    and subclasses that represent several tensors.
    """
    if type(tensor) not in PLAIN_TYPES:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{op}: {name} is a {type(tensor).__name__}; it must be a torch.Tensor")
        if type(tensor).__torch_dispatch__ is not _NO_DISPATCH:
            raise TypeError(
                f"{op}: {name} is a {type(tensor).__name__}, which has no memory to compute on; pass "
                "a plain tensor (of a DTensor: to_local())"
            )
    if tensor.layout is not torch.strided or tensor.is_nested:
        kind = "nested" if tensor.is_nested else tensor.layout
        raise TypeError(
            f"{op}: {name} is a tensor of layout {kind}; it must be strided: to_dense()"
        )
    if op == "backward" and stands_for_a_batch(tensor):
        raise Unsupported(BATCHED_GRADIENTS.format("a switchback layer"))
    return tensor.resolve_neg() if tensor.is_neg() else tensor


def stands_for_a_batch(tensor) -> bool:
    """Whether a plain tensor represents a batch of gradients, which vmap or torch.autograd.grad made."""
    try:
        tensor.data_ptr()
    except RuntimeError:
        return True
    return False


BATCHED_GRADIENTS = (
    "backward: a batch of gradients (is_grads_batched, jacobian with vectorize=True) cannot go through {}; "
    "compute them one at a time (vectorize=False), or use nn.Linear in its place (exclude= of replace_linear)"
)


if HAS_OPERATORS:
    # These functions are looked up once here, because every eager call needs them.
    _is_compiling = torch.compiler.is_compiling
    _modes = torch._C._len_torch_dispatch_stack

    def needs_operator(*tensors, of="a switchback layer") -> bool:
        """Whether a call must go through torch's dispatcher and cannot call the library directly.

        It must for a compiler or a tracer, in torch.func's transforms, for tensors on the meta
        device and for subclasses that represent other tensors (fake, distributed).
        """
        if _is_compiling() or _modes() > 0:
            return True
        if in_transform():
            _refuse_derivatives(of)
            return True
        for tensor in tensors:
            if (type(tensor) not in PLAIN_TYPES or tensor.is_meta) and _stands_for_others(tensor):
                _refuse_distributed(tensor)
                return True
        return False

    def _refuse_distributed(tensor) -> None:
        if type(tensor).__name__ == "DTensor":
            raise TypeError(
                "forward: an operand of a switchback layer is a DTensor, which is not supported; for tensor "
                "parallelism use switchback.nn.SwitchBackColumnParallel and SwitchBackRowParallel in place "
                "of parallelize_module, or pass to_local()"
            )

    def _refuse_derivatives(of) -> None:
        kinds = torch._C._functorch.TransformType
        for interpreter in torch._C._functorch.get_interpreter_stack() or ():
            if interpreter.key() in (kinds.Grad, kinds.Jvp):
                raise Unsupported(
                    f"forward: derivatives of torch.func (grad, vjp, jvp, jacrev) cannot go through {of}; "
                    "use backward() or torch.autograd.grad, or nn.Linear in its place (exclude= of "
                    "replace_linear)"
                )

else:

    def needs_operator(*_tensors, of="") -> bool:
        """Always False: this version of torch has no custom operators."""
        return False


# Functions that say whether a feature of torch which intercepts calls is on; false if it is off. Every call
# checks them, so they are torch's own functions.
DISTURBANCES = (
    torch._C._is_tracing,
    *(
        getattr(torch._C, name)
        for name in (
            "_len_torch_dispatch_stack",
            "_are_functorch_transforms_active",
            "_is_any_autocast_enabled",
        )
        if hasattr(torch._C, name)
    ),
)
if not hasattr(torch._C, "_is_any_autocast_enabled"):
    DISTURBANCES += (torch.is_autocast_enabled, torch.is_autocast_cpu_enabled)

# Whether a compiler traces this code. Compilers know this function and treat its result as True.
is_compiling = getattr(getattr(torch, "compiler", None), "is_dynamo_compiling", lambda: False)


def undisturbed() -> bool:
    """Whether torch leaves calls on plain tensors alone: no compiler, tracer, mode, transform, autocast
    or forward mode is on."""
    if is_compiling():
        return False
    for disturbs in DISTURBANCES:
        if disturbs():
            return False
    return forward_ad._current_level < 0


if hasattr(torch, "get_autocast_dtype"):

    def autocast_dtype(device_type: str):
        """The dtype that autocast computes in on this type of device; None if autocast is off."""
        if device_type in ("cpu", "cuda") and torch.is_autocast_enabled(device_type):
            return torch.get_autocast_dtype(device_type)
        return None

else:

    def autocast_dtype(device_type: str):
        """The dtype that autocast computes in on this type of device; None if it is off. For an older torch.
        """
        if device_type == "cpu":
            return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None


def _stands_for_others(tensor) -> bool:
    if type(tensor) in PLAIN_TYPES:
        return tensor.is_meta
    return isinstance(tensor, torch.Tensor) and (
        tensor.is_meta or type(tensor).__torch_dispatch__ is not _NO_DISPATCH
    )


def check_storage(tensor, op: str, name: str) -> None:
    """Raises InvalidArgument if elements are outside the storage, for example after resizing freed it."""
    count = tensor.numel()
    if count == 0:
        return
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    if tensor.is_contiguous():
        last = count - 1
    else:
        last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    needed = (tensor.storage_offset() + last + 1) * tensor.element_size()
    if storage.nbytes() < needed:
        raise InvalidArgument(
            f"{op}: {name} needs {needed} bytes and its storage has {storage.nbytes()}; was it freed, "
            "as sharded parameters are between uses?"
        )


def check_device(device: torch.device, op: str, name: str) -> None:
    """Raises Unsupported if the library does not support devices of this type."""
    if device.type not in ("cpu", "cuda"):
        raise Unsupported(
            f"{op}: {name} is on device {device}; it must be on the cpu or a cuda device"
        )


def context_of(device: torch.device, op: str, name: str) -> Context:
    """The context of a tensor's device. Raises Unsupported if the library does not support the device."""
    check_device(device, op, name)
    return context_for("cpu" if device.type == "cpu" else f"cuda:{device.index}")


def as_rows(tensor, cols: int) -> tuple[torch.Tensor, int, int]:
    """tensor[..., cols] as a matrix: returns the tensor that owns the memory, the number of rows and the
    stride.

    Copies only if a row is not contiguous, rows overlap, or rows are not evenly spaced.
    """
    if not tensor.is_contiguous():
        tensor = tensor.flatten(0, -2) if tensor.dim() > 2 else tensor
        if tensor.dim() == 2:
            step, element = tensor.stride()
            if element == 1 and step >= cols:
                return tensor, tensor.shape[0], step
        tensor = tensor.contiguous()
    return tensor, tensor.numel() // cols, cols


# ---- Changes of a tensor, as far as torch counts them


def key_of(tensor) -> tuple:
    """A key that changes with a tensor: its version counter and its memory.

    If two keys are equal, the memory is the same, and as far as torch knows it is unchanged.
    """
    if tensor is None:
        return 0, None
    try:
        version = tensor._version
    except RuntimeError:  # an inference tensor has no version counter
        version = -1
    return version, (tensor.data_ptr(), tensor.shape, tensor.stride())


def is_counted(key: tuple) -> bool:
    """Whether torch counts the changes of the tensor that has this key."""
    return key[0] >= 0


def matrix_of(weight) -> tuple:
    """A weight with any strides and dtype as a matrix for the fingerprint, and the tensor that owns the
    memory."""
    source = memory_of(weight.detach(), "forward", "weight")
    check_storage(source, "forward", "weight")
    if source.stride(-2) == 1 and source.stride(-1) > 1:
        # The transpose of a matrix with contiguous rows is read where it is, without a copy.
        source = source.transpose(-2, -1)
    cols = source.shape[-1]
    source, rows, stride = as_rows(source, cols)
    return _abi.Matrix(source.data_ptr(), DTYPES[source.dtype], rows, cols, stride), source


def bias_matrix_of(bias) -> _abi.Matrix:
    """A contiguous bias as a matrix. Its dtype is -1 if the library does not support that dtype."""
    count = bias.shape[-1]
    return _abi.Matrix(
        bias.data_ptr(), DTYPES.get(bias.dtype, -1), bias.numel() // count, count, count
    )
