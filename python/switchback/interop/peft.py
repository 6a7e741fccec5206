# SPDX-License-Identifier: Apache-2.0
"""PEFT's LoRA on prepared layers: adapters that can be merged into int8 codes.

PEFT's own layer adds to a float weight, which a prepared layer does not have. `mergeable(config)`
tells PEFT which class to use for switchback's layers.
"""

from __future__ import annotations

import torch
from peft.tuners.lora import layer as lora
from peft.tuners.tuners_utils import check_adapters_to_merge

from .._errors import InvalidState, Unsupported
from ..nn import _prepared
from ..nn.linear import Int8Layer


def mergeable(config):
    """Changes a LoraConfig so that PEFT accepts prepared layers, and returns it. Call it before
    get_peft_model."""
    config._register_custom_module({Int8Layer: LoraLinear})
    return config


class LoraLinear(lora.Linear):
    """PEFT's LoRA layer for linear layers, with a merge() that also works on int8 codes.

    merge() dequantizes the codes, adds the adapter, and quantizes the sum with new scales, rounded as in
    prepare_for_eval(). unmerge() restores the codes from before the merge.
    """

    def __init__(self, base_layer, adapter_name: str, config=None, **rest):
        rest.pop("parameter_name", None)
        module = base_layer.get_base_layer() if hasattr(base_layer, "get_base_layer") else base_layer
        config.fan_in_fan_out = bool(module.transposed)
        if module.transposed:
            rest["is_target_conv_1d_layer"] = True
        super().__init__(base_layer, adapter_name, config=config, **rest)
        self._before: tuple | None = None  # codes and scales before the first merge

    def merge(self, safe_merge: bool = False, adapter_names=None) -> None:
        """Adds the adapters to the base layer's weight, like PEFT's Linear.merge."""
        module = self.get_base_layer()
        if not module.is_prepared:
            super().merge(safe_merge, adapter_names)
            return
        kind = type(module).__name__
        if _prepared.float_weight(module) is not None:
            raise InvalidState(
                f"merge: {kind} is prepared and its float weight is shared with another module, such as "
                "an embedding; merge before prepare_for_eval"
            )
        for name in check_adapters_to_merge(self, adapter_names) or ():
            if name not in self.lora_A:
                continue
            if name in self.lora_variant or self.lora_bias[name]:
                raise Unsupported(
                    f"merge: adapter {name!r} on the codes of {kind} is a variant of LoRA or has "
                    "lora_bias = True; merge it into the float weight, before prepare_for_eval"
                )
            self._merge_one(module, name, safe_merge)
            self.merged_adapters.append(name)

    def _merge_one(self, module, name: str, safe_merge: bool) -> None:
        with torch.no_grad():
            delta = self.get_delta_weight(name)
            delta = delta.t() if module.transposed else delta
            rows = _prepared.float_rows(module)
            rows += delta.to(rows)
        if safe_merge and not torch.isfinite(rows).all():
            raise ValueError(f"merge: the weight has NaN or Inf with adapter {name!r}")
        if self._before is None:
            self._before = module.W_int8, module.state_W
        _prepared.set_rows(module, rows)

    def unmerge(self) -> None:
        """Removes the merged adapters from the base layer's weight, like PEFT's Linear.unmerge."""
        module = self.get_base_layer()
        if self._before is None:
            super().unmerge()
            return
        device = module.W_int8.device
        _prepared.set_codes(module, *(tensor.to(device) for tensor in self._before))
        self._before = None
        self.merged_adapters.clear()
