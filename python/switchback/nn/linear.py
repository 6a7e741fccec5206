# SPDX-License-Identifier: Apache-2.0
"""The modules: torch.nn.Linear with its products computed by the library."""

from __future__ import annotations

import torch

from .. import _abi
from . import _prepared
from ._function import linear, prepared_linear
from ._layer import LayerSet


class SwitchBackLinear(torch.nn.Linear):
    """nn.Linear whose forward product and input gradient are int8 products (arXiv 2304.13013).

    Args:
        in_features, out_features, bias, device, dtype: as for nn.Linear. The dtype of parameters
            and inputs is float32, float16 or bfloat16, the same for both but under autocast.
        vector_wise_quantization: one scale per row of the weight (per column for the input
            gradient) rather than one for all of it. Inputs and gradients always have one per row.
        mem_efficient: keeps the input's int8 codes and scales for backward, not the input: a
            quarter or half of the memory, and a weight gradient of the dequantized input.
        mode: None, or "rowwise" (as vector_wise_quantization), "global", "standard" (no int8) or
            "auto" (pass by pass, the fastest of these as this machine was tuned).
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device=None,
        dtype=None,
        vector_wise_quantization: bool = False,
        mem_efficient: bool = False,
        *,
        mode: str | None = None,
    ):
        mode = _mode_of(mode, vector_wise_quantization, mem_efficient)
        for name, value in (("in_features", in_features), ("out_features", out_features)):
            if value < 1:
                raise ValueError(f"SwitchBackLinear: {name} = {value}; it must be at least 1")
        super().__init__(in_features, out_features, bias=bias, device=device, dtype=dtype)
        self.mode = mode
        self.mem_efficient = mem_efficient
        self._float = {"dtype": self.weight.dtype, "requires_grad": True}
        self._layers = LayerSet(in_features, out_features, _abi.MODES[mode])

    @property
    def vector_wise_quantization(self) -> bool:
        """Whether the weight has one scale per row."""
        return self.mode == "rowwise"

    @property
    def is_prepared(self) -> bool:
        """Whether the weight is int8 codes, made by prepare_for_eval() or loaded."""
        return "W_int8" in self._buffers

    def forward(self, x):
        """y[..., out_features] of x[..., in_features], in x's dtype (under autocast, autocast's)."""
        if self.is_prepared:
            return prepared_linear(
                x, self.W_int8, self.state_W, self.bias, self._layers, self.training
            )
        return linear(x, self.weight, self.bias, self._layers, self.mem_efficient)

    def weight_updated(self) -> None:
        """To be called in reuse_weight_codes() when the weight was changed past autograd (`.data`).

        Elsewhere every change is noticed: the next forward looks at the weight by itself.
        """
        self._layers.weight_updated()

    def prepare_for_eval(self):
        """Replaces the weight by its int8 codes: the buffers W_int8[N,K] and state_W[N] or [1].

        The weight parameter becomes None; outputs stay the same to the bit. For inference only: to
        train again, load a state_dict with a float weight. Does nothing when it was done already,
        and in the modes standard and auto, which need the float weight. Returns the module.
        """
        _prepared.prepare(self)
        return self

    def extra_repr(self) -> str:
        words = [super().extra_repr(), f"mode={self.mode}"]
        if self.mem_efficient:
            words.append("mem_efficient=True")
        if self.is_prepared:
            words.append("prepared_for_eval=True")
        return ", ".join(words)

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        state_dict, rejected = _prepared.take_form_of(self, state_dict, prefix, rest)
        if not rejected:
            super()._load_from_state_dict(state_dict, prefix, *rest)
        self._layers.weight_updated()

    def _apply(self, fn, *args, **kwargs):
        scales = self._buffers.get("state_W")
        super()._apply(fn, *args, **kwargs)
        if scales is not None and self.state_W.dtype is not torch.float32:
            self.state_W = scales.to(self.state_W.device)  # scales are float32, whatever x is
        if self._parameters.get("weight") is not None:
            self._float["dtype"] = self.weight.dtype
        self._layers.release()
        return self

    def _replicate_for_data_parallel(self):
        replica = super()._replicate_for_data_parallel()
        replica._layers = LayerSet(self.in_features, self.out_features, _abi.MODES[self.mode])
        return replica


class SwitchBackLinearGlobal(SwitchBackLinear):
    """SwitchBackLinear with one scale for the weight."""

    def __init__(
        self, in_features, out_features, bias=True, device=None, dtype=None, mem_efficient=False
    ):
        super().__init__(
            in_features, out_features, bias, device, dtype, False, mem_efficient, mode="global"
        )


class SwitchBackLinearGlobalMemEfficient(SwitchBackLinearGlobal):
    """SwitchBackLinear with one scale for the weight that keeps int8 codes for backward."""

    def __init__(
        self, in_features, out_features, bias=True, device=None, dtype=None, mem_efficient=True
    ):
        super().__init__(in_features, out_features, bias, device, dtype, mem_efficient)


class SwitchBackLinearVectorwise(SwitchBackLinear):
    """SwitchBackLinear with one scale per row of the weight."""

    def __init__(
        self, in_features, out_features, bias=True, device=None, dtype=None, mem_efficient=False
    ):
        super().__init__(
            in_features, out_features, bias, device, dtype, True, mem_efficient, mode="rowwise"
        )


class StandardLinear(SwitchBackLinear):
    """The same module without int8: what the others are measured against."""

    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__(in_features, out_features, bias, device, dtype, mode="standard")


def _mode_of(mode, vector_wise_quantization: bool, mem_efficient: bool) -> str:
    if mode is None:
        return "rowwise" if vector_wise_quantization else "global"
    if mode not in _abi.MODES:
        allowed = ", ".join(repr(name) for name in _abi.MODES)
        raise ValueError(f"SwitchBackLinear: mode = {mode!r}; it must be None or one of {allowed}")
    if vector_wise_quantization and mode != "rowwise":
        raise ValueError(
            f"SwitchBackLinear: vector_wise_quantization = True in mode {mode!r}; it is mode 'rowwise'"
        )
    if mem_efficient and mode in ("standard", "auto"):
        raise ValueError(
            f"SwitchBackLinear: mem_efficient = True in mode {mode!r}, which has no codes to keep; it "
            "needs mode 'rowwise' or 'global'"
        )
    return mode


if hasattr(torch, "compiler") and hasattr(torch.compiler, "disable"):
    # ctypes calls are nothing that can be traced: a compiled model breaks its graph here.
    SwitchBackLinear.forward = torch.compiler.disable(SwitchBackLinear.forward)
