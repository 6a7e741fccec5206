# SPDX-License-Identifier: Apache-2.0
"""Modules like those of packages that need not be installed. Import this file only if torch is installed."""

import torch
from torch import nn


class Conv1D(nn.Module):
    """A copy of transformers.pytorch_utils.Conv1D, GPT-2's linear layer, whose weight is [in, out]."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf = nf
        self.nx = nx
        self.weight = nn.Parameter(torch.randn(nx, nf) * 0.3)
        self.bias = nn.Parameter(torch.randn(nf))

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight).view(
            *x.shape[:-1], self.nf
        )
