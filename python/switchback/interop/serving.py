# SPDX-License-Identifier: Apache-2.0
"""int8 layers for serving engines whose linear modules leave weights and products to a method object.

SwitchBackLinearMethod has the functions of a linear method in vLLM (create_weights,
process_weights_after_loading, apply). It does not import vLLM, so other engines and tests can
use it too. A row of y has the same bits, in any batch, as in a model that trains with
SwitchBackLinear in mode "rowwise" (or "rowwise_shared").
"""

from __future__ import annotations

import torch

from .. import ops
from .._errors import InvalidArgument, InvalidState, Unsupported
from .._tensors import FLOATS
from ..nn._function import prepared_linear
from ..nn._layer import LayerSet
from ..nn._options import LayerOptions
from ..nn._prepared import CODES, SCALES


class SwitchBackLinearMethod:
    """A linear method for serving engines, with weights as int8 codes that have a scale per row.

    One object serves any number of modules. A module holds the parameter weight[N,K] from create_weights
    until process_weights_after_loading, and then the buffers W_int8[N,K] and state_W[N]. The rows of
    several matrices may follow each other (query, key and value): each row has its own scale. A part
    of the columns (row parallel layers) would have other scales than the whole, and is refused.
    """

    def create_weights(
        self,
        layer,
        input_size_per_partition: int,
        output_partition_sizes,
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        **attributes,
    ) -> None:
        """Creates the module's weight, into which the engine loads the checkpoint; sets these attributes on
        it."""
        if input_size_per_partition != input_size:
            raise Unsupported(
                f"create_weights: input_size_per_partition = {input_size_per_partition}; it must be "
                f"input_size = {input_size}: a part of the columns has other scales, and results would "
                "differ from those of the whole layer"
            )
        if params_dtype not in FLOATS:
            raise TypeError(
                f"create_weights: params_dtype = {params_dtype}; it must be torch.float32, "
                "torch.float16 or torch.bfloat16"
            )
        rows = sum(output_partition_sizes)
        weight = torch.empty(rows, input_size, dtype=params_dtype)
        weight = torch.nn.Parameter(weight, requires_grad=False)
        for name, value in {"input_dim": 1, "output_dim": 0, **attributes}.items():
            setattr(weight, name, value)
        layer.register_parameter("weight", weight)
        layer.switchback_layers = LayerSet(input_size, rows, LayerOptions("rowwise"))

    def process_weights_after_loading(self, layer) -> None:
        """Quantizes the module's weight and replaces it by the codes. Does nothing if this was already done.
        """
        weight = layer.weight
        if weight is None and layer._buffers.get(CODES) is not None:
            return
        layer.weight = None
        self.update_weights(layer, weight)

    def update_weights(self, layer, weight) -> None:
        """Sets a new float weight[N,K] (float32, float16 or bfloat16), for example from a trainer.

        The new codes overwrite the old codes in place. The next apply packs them.
        """
        shape = layer.switchback_layers.out_features, layer.switchback_layers.in_features
        if tuple(weight.shape) != shape:
            raise InvalidArgument(
                f"update_weights: weight has shape {tuple(weight.shape)}; it must be {shape}"
            )
        with torch.inference_mode(False), torch.no_grad():
            made = ops.quantize_rowwise(weight.detach())
            for name, tensor in zip((CODES, SCALES), made):
                if layer._buffers.get(name) is None:
                    layer.register_buffer(name, tensor)
                else:
                    layer._buffers[name].copy_(tensor)

    def apply(self, layer, x, bias=None):
        """Computes the module's output y[..., N] from x[..., K], in x's dtype."""
        codes = layer._buffers.get(CODES)
        if codes is None:
            raise InvalidState("apply: the weight is not quantized; call process_weights_after_loading")
        return prepared_linear(x, codes, layer._buffers[SCALES], bias, layer.switchback_layers)
