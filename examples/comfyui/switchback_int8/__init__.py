# SPDX-License-Identifier: Apache-2.0
"""A custom node of ComfyUI that adds no nodes: when ComfyUI starts, its int8 layers get switchback's kernels.

Copy this folder into ComfyUI/custom_nodes. Without the package switchback, ComfyUI says in its log that
the import failed, and runs as before.
"""

import logging

from switchback.interop import comfy_kitchen

NODE_CLASS_MAPPINGS = {}

functions = comfy_kitchen.register()
status = comfy_kitchen.status()
logging.info(
    "switchback computes %s of comfy-kitchen; backends are asked in the order %s; packed weights take "
    "at most %.1f GB of memory on the CPU",
    ", ".join(functions),
    ", ".join(status["priority"]),
    status["packed_bytes_limit"] / 1e9,
)
for name, reason in status["left"].items():
    logging.warning("switchback leaves %s to the other backends: %s", name, reason)
