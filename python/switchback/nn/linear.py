# SPDX-License-Identifier: Apache-2.0
"""The linear modules: torch.nn.Linear with products that the library computes."""

from __future__ import annotations

import copy

import torch

from .._errors import InvalidState
from .._modes import MODES, names_where
from . import _prepared
from ._function import linear, prepared_linear
from ._layer import LayerSet
from ._module import OnLibrary, outside_graphs
from ._options import LayerOptions, check_dw, check_rotation
from ._trace import as_leaf, is_traced
from ._weight_of_codes import weight_of_codes


_COMPUTED_WEIGHT = (
    "the weight of {!r} cannot be computed from other parameters (parametrizations, pruning, norms of "
    "weights): the layer is prepared, and computes with int8 codes; do it before prepare_for_eval, or "
    "exclude the layer (exclude= of replace_linear)"
)


class Int8Layer(OnLibrary):
    """The mixin of all linear layers of this package, for torch.nn.Modules.

    Such a module has in_features (K), out_features (N), bias[N] or None, and the parameter weight
    [N,K], or [K,N] with `transposed`.
    """

    _SCRIPT_INSTEAD = "; script the model with nn.Linear in its place"
    transposed = 0
    rotation = 0
    dw = "floating"
    dw_block_rows = 256
    rounding = "nearest"
    seed = 0
    _joined = None  # layers that are computed together with it (_joined.py)

    def _init_int8(
        self,
        mode: str,
        mem_efficient: bool,
        rotation: int = 0,
        dw: str = "floating",
        dw_block_rows: int = 256,
        rounding: str = "nearest",
        seed: int = 0,
    ) -> None:
        """Sets the options of the layer. Call it at the end of __init__, when the parameters exist."""
        self.mode = mode
        self.mem_efficient = mem_efficient
        self.rotation = rotation
        self.dw, self.dw_block_rows = dw, dw_block_rows
        self.rounding, self.seed = rounding, seed
        self._float = {"dtype": self.weight.dtype, "requires_grad": True}
        self._layers = self._new_layers()

    def _new_layers(self) -> LayerSet:
        return LayerSet(self.in_features, self.out_features, self._options())

    def _options(self) -> LayerOptions:
        return LayerOptions(
            self.mode,
            rotation=self.rotation,
            dw=self.dw,
            dw_block_rows=self.dw_block_rows,
            rounding=self.rounding,
            seed=self.seed,
            transposed=self.transposed,
        )

    @property
    def rounding_step(self) -> int:
        """With rounding="stochastic", the number of backwards so far.

        The random bits depend on it. Set it to continue with the same bits after a restart. Copies
        and state_dicts do not have it.
        """
        return self._layers.rounding_step

    @rounding_step.setter
    def rounding_step(self, step: int) -> None:
        if not 0 <= step < 2**32:
            raise ValueError(f"rounding_step = {step}; it must be from 0 to 2**32 - 1")
        self._layers.rounding_step = step

    def _weight_rows(self):
        """The weight as [N,K], without a copy."""
        return self.weight

    def _weight_shape(self) -> tuple[int, int]:
        """The shape of the float parameter `weight`."""
        return self.out_features, self.in_features

    @property
    def vector_wise_quantization(self) -> bool:
        """Whether the weight has one scale per row."""
        return self.mode == "rowwise"

    @property
    def is_prepared(self) -> bool:
        """Whether the weight is int8 codes, made by prepare_for_eval() or loaded."""
        return "W_int8" in self._buffers

    def __getattr__(self, name):
        if name == "weight" and _prepared.has_codes_alone(self):
            return weight_of_codes(self)
        return super().__getattr__(name)

    def __delattr__(self, name):
        if name == "weight" and _prepared.has_codes_alone(self):
            raise InvalidState(_COMPUTED_WEIGHT.format(self))
        super().__delattr__(name)

    def register_parameter(self, name, param):
        """Like nn.Module.register_parameter, but a prepared layer refuses the parameters of a parametrized
        weight."""
        if name.startswith("weight_") and _prepared.has_codes_alone(self):
            raise InvalidState(_COMPUTED_WEIGHT.format(self))
        super().register_parameter(name, param)

    @property
    def qweight(self):
        """The codes of a prepared layer, under the name that adapters (PEFT) look for."""
        if not self.is_prepared:
            raise AttributeError(f"{type(self).__name__} has a float weight, and no qweight")
        return self.W_int8

    def forward(self, input):
        """Computes y[..., out_features] from input[..., in_features], in its dtype (or the autocast dtype).
        """
        if type(input) is not torch.Tensor and is_traced(input):
            return as_leaf(self, input)
        # Parameters are read from torch's tables directly if possible: the attribute look-up takes longer.
        bias = self._parameters.get("bias")
        if bias is None:
            bias = self.bias
        buffers = self._buffers
        if "W_int8" in buffers:
            return prepared_linear(input, buffers["W_int8"], buffers["state_W"], bias, self._layers)
        if self._joined is not None:
            y = self._joined.forward(self, input)
            if y is not None:
                return y
        weight = self._parameters.get("weight")
        if weight is None:
            weight = self.weight
        return linear(input, weight, bias, self._layers, self.mem_efficient)

    def weight_updated(self) -> None:
        """Announces a change of the weight that autograd does not see (`.data`), inside reuse_weight_codes().

        Outside that block every change is noticed, because the next forward checks the weight, or the
        codes of a prepared layer. On a CUDA device prepared codes are not checked: there, call it after
        every change that autograd does not see.
        """
        super().weight_updated()
        if self._joined is not None:
            self._joined.weight_updated()

    def prepare_for_eval(self):
        """Replaces the weight by its int8 codes: the buffers W_int8[N,K] and state_W[N] or [1].

        The weight parameter is removed. `weight` is then a read-only tensor that dequantizes the codes
        when it is read. Outputs stay the same to the bit. For inference only: to train again,
        load a state_dict with a float weight. Does nothing if the layer is already prepared,
        or in the modes standard and auto, which need the float weight. Returns the module. For a
        model with tied weights use switchback.nn.prepare_for_eval(model).
        """
        _prepared.prepare(self)
        return self

    def extra_repr(self) -> str:
        words = [super().extra_repr(), f"mode={self.mode}"]
        if self.mem_efficient:
            words.append("mem_efficient=True")
        if self.rotation:
            words.append(f"rotation={self.rotation}")
        if self.dw != "floating":
            words.append(f"dw={self.dw}, dw_block_rows={self.dw_block_rows}")
        if self.rounding != "nearest":
            words.append(f"rounding={self.rounding}, seed={self.seed}")
        if self.is_prepared:
            words.append("prepared_for_eval=True")
        return ", ".join(word for word in words if word)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        # On the meta device values do not exist: there, state_dict has the keys that a checkpoint may have.
        if _prepared.has_codes_alone(self) and not self.W_int8.is_meta:
            destination[prefix + "weight"] = _prepared.placeholder(self)

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        state_dict, rejected = _prepared.take_form_of(self, state_dict, prefix, rest)
        if rejected:
            self.weight_updated()
        else:
            super()._load_from_state_dict(state_dict, prefix, *rest)

    def _apply(self, fn, *args, **kwargs):
        scales = self._buffers.get("state_W")
        super()._apply(fn, *args, **kwargs)
        if scales is not None and self.state_W.dtype is not torch.float32:
            self.state_W = scales.to(self.state_W.device)  # scales are float32 for every dtype of x
        weight = self._parameters.get("weight")
        if weight is None:  # codes replace the weight
            weight = fn(torch.empty(0, dtype=self._float["dtype"]))
        self._float = {**self._float, "dtype": weight.dtype}
        if self._joined is not None:
            self._joined.release()
        return self

    def _replicate_for_data_parallel(self):
        replica = super()._replicate_for_data_parallel()
        replica._joined = None
        # A replica of DataParallel lives only for one forward and its backward, so this module counts its
        # rounding steps.
        replica._layers.rounding_step = self._layers.next_rounding()[2]
        return replica


def adopt(new, old) -> None:
    """Copies all attributes of the module `old` to the uninitialised module `new`: parameters, hooks and
    the rest."""
    tables = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
    for name, value in vars(old).items():
        new.__dict__[name] = copy.copy(value) if name in tables else value


class SwitchBackLinear(Int8Layer, torch.nn.Linear):
    """nn.Linear whose forward product and input gradient are int8 products (arXiv 2304.13013).

    Args:
        in_features, out_features, bias, device, dtype: as for nn.Linear. The dtype of parameters
            and inputs is float32, float16 or bfloat16, and the same for both unless autocast is on.
        vector_wise_quantization: one scale per row of the weight (per column for the input
            gradient) instead of one for all of it. Inputs and gradients always have one per row.
        mem_efficient: keeps the input's int8 codes and scales for backward, not the input. This
            needs a quarter or half of the memory, and the weight gradient uses the dequantized input.
        mode: None, or "rowwise" (as vector_wise_quantization), "rowwise_shared" (the same, but the
            input gradient reads the codes of the forward: half the codes, and the weight is
            quantized once), "global", "standard" (no int8) or "auto" (for each pass, the fastest of
            these according to this machine's tuning).
        rotation: 0, or 4, 16, 64, 256 or 1024, of which in_features is a multiple: inputs and weight
            are multiplied by Hadamard matrices of that size before they are quantized, which
            spreads outliers. Codes are those of the rotated weight (W_int8 of a "ConvRot"
            checkpoint is its int8 weight, state_W 127 times its weight_scale).
        dw: "floating", or "int8_block": the weight gradient is an int8 product too, from codes that
            have a scale for each column of dw_block_rows (128, 256, 512 or 1024) rows. They are kept
            for backward instead of the input, in a quarter or half of its memory (in mode "auto"
            and in compiled models the input is kept). For modes "rowwise",
            "rowwise_shared", "global" and "auto".
        rounding: "nearest", or "stochastic": the codes of the output's gradient are rounded up or
            down at random, without bias on average. This applies to the input gradient, also of a
            prepared layer, and with dw="int8_block" to the weight gradient. Only in eager mode.
        seed: the seed of the random bits, from 0 to 2**64 - 1. None draws it from torch's generator,
            which torch.manual_seed sets. The bits are a function of the seed, the number of the backward
            (rounding_step), the process's rank in torch.distributed, and the element's index. They are
            the same on every device, under autocast and with checkpointing.
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
        rotation: int = 0,
        dw: str = "floating",
        dw_block_rows: int = 256,
        rounding: str = "nearest",
        seed: int | None = None,
    ):
        mode = _mode_of(mode, vector_wise_quantization, mem_efficient)
        check_rotation("SwitchBackLinear", rotation, in_features, mode)
        check_dw("SwitchBackLinear", dw, dw_block_rows, mode)
        if dw == "int8_block" and mem_efficient:
            raise ValueError(
                "SwitchBackLinear: dw = 'int8_block' with mem_efficient; it always keeps codes of the input, "
                "so omit mem_efficient"
            )
        seed = _seed_of(rounding, seed, mode)
        for name, value in (("in_features", in_features), ("out_features", out_features)):
            if value < 0:
                raise ValueError(f"SwitchBackLinear: {name} = {value}; it must be at least 0")
        super().__init__(in_features, out_features, bias=bias, device=device, dtype=dtype)
        self._init_int8(mode, mem_efficient, rotation, dw, dw_block_rows, rounding, seed)


class SwitchBackLinearGlobal(SwitchBackLinear):
    """SwitchBackLinear with one scale for the weight. The options are those of SwitchBackLinear."""

    def __init__(
        self,
        in_features,
        out_features,
        bias=True,
        device=None,
        dtype=None,
        mem_efficient=False,
        **options,
    ):
        of_input = False, mem_efficient
        super().__init__(
            in_features, out_features, bias, device, dtype, *of_input, mode="global", **options
        )


class SwitchBackLinearGlobalMemEfficient(SwitchBackLinearGlobal):
    """A SwitchBackLinearGlobal that keeps int8 codes of the input for backward. It cannot compute dW in int8.
    """

    def __init__(
        self,
        in_features,
        out_features,
        bias=True,
        device=None,
        dtype=None,
        mem_efficient=True,
        **options,
    ):
        super().__init__(in_features, out_features, bias, device, dtype, mem_efficient, **options)


class SwitchBackLinearVectorwise(SwitchBackLinear):
    """SwitchBackLinear with one scale per row of the weight. The options are those of SwitchBackLinear."""

    def __init__(
        self,
        in_features,
        out_features,
        bias=True,
        device=None,
        dtype=None,
        mem_efficient=False,
        **options,
    ):
        of_input = True, mem_efficient
        super().__init__(
            in_features, out_features, bias, device, dtype, *of_input, mode="rowwise", **options
        )


class StandardLinear(SwitchBackLinear):
    """A SwitchBackLinear that computes without int8: the baseline. It refuses rotation, dw and rounding."""

    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None, **options):
        super().__init__(in_features, out_features, bias, device, dtype, mode="standard", **options)


class SwitchBackLinearBnb(SwitchBackLinearVectorwise):
    """SwitchBackLinearVectorwise under the name and with the arguments of bitsandbytes.nn.

    has_fp16_weights=False is refused: use prepare_for_eval() instead. A threshold for outliers is refused and
    has no replacement. memory_efficient_backward is mem_efficient.
    """

    def __init__(
        self,
        input_features,
        output_features,
        bias=True,
        has_fp16_weights=True,
        memory_efficient_backward=False,
        threshold=0.0,
        index=None,
        device=None,
        dtype=None,
        **options,
    ):
        if not has_fp16_weights:
            raise ValueError(
                "SwitchBackLinearBnb: has_fp16_weights = False; it must be True: for int8 weights load "
                "or train it, then call prepare_for_eval()"
            )
        if threshold != 0.0:
            raise ValueError(
                f"SwitchBackLinearBnb: threshold = {threshold}; it must be 0: there are no outlier columns"
            )
        super().__init__(
            input_features, output_features, bias, device, dtype, memory_efficient_backward, **options
        )
        self.index = index


class StandardLinearFunction:
    """The function torch.nn.functional.linear under the name that bitsandbytes uses for its StandardLinear.
    """

    @staticmethod
    def apply(input, weight, bias=None):
        """Computes y[..., N] = input[..., K] . weight[N,K]^T + bias[N]."""
        return torch.nn.functional.linear(input, weight, bias)


def _mode_of(mode, vector_wise_quantization: bool, mem_efficient: bool) -> str:
    if mode is None:
        return "rowwise" if vector_wise_quantization else "global"
    if mode not in MODES:
        allowed = ", ".join(repr(name) for name in MODES)
        raise ValueError(f"SwitchBackLinear: mode = {mode!r}; it must be None or one of {allowed}")
    if vector_wise_quantization and mode != "rowwise":
        raise ValueError(
            f"SwitchBackLinear: vector_wise_quantization = True in mode {mode!r}; it means mode 'rowwise'"
        )
    if mem_efficient and not MODES[mode].is_int8:
        raise ValueError(
            f"SwitchBackLinear: mem_efficient = True in mode {mode!r}, which has no codes to keep; it "
            f"needs mode {names_where(lambda each: each.is_int8)}"
        )
    return mode


def _seed_of(rounding: str, seed: int | None, mode: str) -> int:
    """The seed of the random bits, drawn if it is None. Checks that it fits to the rounding and the mode."""
    if rounding != "stochastic":
        if seed is not None:
            raise ValueError(
                f"SwitchBackLinear: seed = {seed!r} with rounding = {rounding!r}; it needs 'stochastic'"
            )
        return 0
    if mode == "standard":
        raise ValueError(
            "SwitchBackLinear: rounding = 'stochastic' in mode 'standard', which has no codes to round"
        )
    return int(torch.randint(2**63 - 1, (), device="cpu")) if seed is None else seed


outside_graphs(Int8Layer, "forward")
