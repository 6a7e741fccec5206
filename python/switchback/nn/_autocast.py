# SPDX-License-Identifier: Apache-2.0
"""The dtype that torch.autocast asks for, under every version of its interface."""

from __future__ import annotations

import torch

if hasattr(torch, "get_autocast_dtype"):

    def autocast_dtype(device_type: str):
        """The dtype that autocast computes in on such a device, or None where it is off."""
        if device_type in ("cpu", "cuda") and torch.is_autocast_enabled(device_type):
            return torch.get_autocast_dtype(device_type)
        return None

else:

    def autocast_dtype(device_type: str):
        """The dtype that autocast computes in on such a device, or None where it is off."""
        if device_type == "cpu":
            return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
