# SPDX-License-Identifier: Apache-2.0
"""switchback in other packages: transformers, diffusers, PEFT, torchao, ComfyUI's comfy-kitchen, and
checkpoints that others wrote.

Nothing here is imported by switchback itself; import the module that you need.
"""
