# SPDX-License-Identifier: Apache-2.0
"""A quantizer for diffusers: from_pretrained(..., quantization_config=SwitchBackQuantConfig()).

Importing this module registers it. Models that were saved with it load after the same import.
"""

from __future__ import annotations

import enum

from diffusers.quantizers import auto
from diffusers.quantizers.base import DiffusersQuantizer
from diffusers.quantizers.quantization_config import QuantizationConfigMixin

from ..nn._prepared import CODES, ROTATION, SCALES
from ..nn.linear import Int8Layer
from ._replace import QuantConfig, finish_layers, put_layers


class _Method(str, enum.Enum):
    """The name of the quantization method. It is an enumeration because diffusers reads its `.value`."""

    SWITCHBACK = "switchback"


class SwitchBackQuantConfig(QuantConfig, QuantizationConfigMixin):
    """Config for diffusers: SwitchBackConfig's arguments, with weights="int8" by default, and the modules
    to leave.

    See QuantConfig. modules_to_not_convert: names of modules, or parts of names. None: all linear layers
    are replaced.
    """

    _METHOD = _Method.SWITCHBACK

    def to_diff_dict(self):
        """All values, and not only those that differ from defaults, because diffusers prints the result."""
        return self.to_dict()


class SwitchBackQuantizer(DiffusersQuantizer):
    """Puts switchback layers into a model before its weights are loaded."""

    use_keep_in_fp32_modules = True

    def _process_model_before_weight_loading(self, model, keep_in_fp32_modules=None, **kwargs):
        config = self.quantization_config
        left = [*(config.modules_to_not_convert or ()), *(keep_in_fp32_modules or ())]
        self.modules_to_not_convert = left
        put_layers(model, config, left, self.pre_quantized and config.weights == "int8")
        model.config["quantization_config"] = config
        return model

    def _process_model_after_weight_loading(self, model, **kwargs):
        finish_layers(model, self.quantization_config)
        return model

    def check_if_quantized_param(self, model, param_value, param_name, state_dict, **kwargs):
        """True for int8 codes and their scales: diffusers itself would cast the scales to the model's dtype.
        """
        owner, _, name = param_name.rpartition(".")
        return name in (CODES, SCALES, ROTATION) and isinstance(model.get_submodule(owner), Int8Layer)

    def create_quantized_param(self, model, param_value, param_name, target_device, state_dict, *rest, **kw):
        owner, _, name = param_name.rpartition(".")
        module = model.get_submodule(owner)
        module._buffers[name] = state_dict[param_name].to(target_device)
        module.weight_updated()

    def maybe_update_loaded_keys(self, loaded_keys, checkpoint_files):
        """Leaves out the keys of the empty float weights next to int8 codes (see nn/_prepared.py)."""
        known = set(loaded_keys)
        return [
            key
            for key in loaded_keys
            if not (key.endswith(".weight") and key.removesuffix("weight") + CODES in known)
        ]

    @property
    def is_serializable(self):
        return True

    @property
    def is_trainable(self):
        """Always True: float weights train, and int8 weights can have adapters that train."""
        return True

    @property
    def is_compileable(self):
        return True


auto.AUTO_QUANTIZATION_CONFIG_MAPPING[_Method.SWITCHBACK.value] = SwitchBackQuantConfig
auto.AUTO_QUANTIZER_MAPPING[_Method.SWITCHBACK.value] = SwitchBackQuantizer
