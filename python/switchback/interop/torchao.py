# SPDX-License-Identifier: Apache-2.0
"""Importing this module makes torchao.quantization.quantize_(model, SwitchBackConfig(...)) work."""

from __future__ import annotations

from torchao.core.config import AOBaseConfig
from torchao.quantization.transform_module import register_quantize_module_handler

from ..nn._quantize import SwitchBackConfig, replace_one

AOBaseConfig.register(SwitchBackConfig)
register_quantize_module_handler(SwitchBackConfig)(replace_one)

__all__ = ["SwitchBackConfig"]
