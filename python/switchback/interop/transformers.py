# SPDX-License-Identifier: Apache-2.0
"""A quantizer for transformers: from_pretrained(..., quantization_config=SwitchBackQuantConfig()).

Importing this module registers it. Models that were saved with it load after the same import.
"""

from __future__ import annotations

from transformers.quantizers import HfQuantizer
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from ..nn.linear import Int8Layer
from ._replace import QuantConfig, finish_layers, put_layers

METHOD = "switchback"


@register_quantization_config(METHOD)
class SwitchBackQuantConfig(QuantConfig, QuantizationConfigMixin):
    """Config for transformers: SwitchBackConfig's arguments, with weights="int8" by default, and modules to
    leave.

    See QuantConfig. modules_to_not_convert: names of modules, or parts of names. None: the heads that
    transformers never converts in a quantized model (lm_head and tied embeddings).
    """

    _METHOD = METHOD


@register_quantizer(METHOD)
class SwitchBackQuantizer(HfQuantizer):
    """Puts switchback layers into a model before its weights are loaded."""

    requires_calibration = False

    def _process_model_before_weight_loading(self, model, **kwargs):
        config = self.quantization_config
        left = self.get_modules_to_not_convert(
            model, config.modules_to_not_convert, getattr(model, "_keep_in_fp32_modules", None)
        )
        from_codes = self.pre_quantized and config.weights == "int8"
        replaced = put_layers(model, config, left, from_codes)
        if from_codes:
            for module in model.modules():
                if isinstance(module, Int8Layer):
                    module._is_hf_initialized = True  # the layer has no weight to initialise
            for module in model.modules():
                # Some models initialise the weights of their children and ignore the children's flag.
                layers = any(isinstance(child, Int8Layer) for child in module.children())
                if layers and not module._parameters:
                    module._is_hf_initialized = True
            # The state_dict has empty float weights next to the int8 codes; loading ignores them
            # (nn/_prepared.py).
            known = getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()
            patterns = (rf"^{name.replace('.', '[.]')}[.]weight$" for name in replaced)
            model._keys_to_ignore_on_load_unexpected = {*known, *patterns}
        return model

    def _process_model_after_weight_loading(self, model, **kwargs):
        finish_layers(model, self.quantization_config)
        return model

    def is_serializable(self, *args, **kwargs):
        return True

    @property
    def is_trainable(self):
        """Always True: float weights train, and int8 weights can have adapters that train."""
        return True

    @property
    def is_qat_trainable(self):
        return self.quantization_config.weights == "float"

    @property
    def is_compileable(self):
        return True
