# SPDX-License-Identifier: Apache-2.0
"""Support for transformers, diffusers, PEFT, torchao, ONNX, ComfyUI's comfy-kitchen, serving engines and
the int8 checkpoints of other programs.

switchback does not import these modules itself. Import the module that you need.
"""
