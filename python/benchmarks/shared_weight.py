# SPDX-License-Identifier: Apache-2.0
"""Accuracy of dX by the scales of W: the figures of mode rowwise_shared in docs/numerics.md.

    PYTHONPATH=python SWITCHBACK_LIBRARY=build/release/lib/libswitchback.so \
        python3 python/benchmarks/shared_weight.py

Each line is for a distribution of the elements of W[N,K]. It has the signal-to-noise ratio of dX = G W
against f64, in dB, of a layer in each mode; the mean of three seeds.
"""

import torch

from switchback import nn

M, K, N, SEEDS = 256, 256, 4096, 3
MODES = ("rowwise", "rowwise_shared", "global")


def large_columns(w):
    w[:, torch.randperm(K)[: max(1, K // 100)]] *= 10
    return w


PROFILES = {
    "independent": lambda w: w,
    "1 % of columns x10": large_columns,
    "lognormal rows": lambda w: w * torch.exp(torch.randn(N, 1)),
}


def ratio(mode, w, g):
    layer = nn.SwitchBackLinear(K, N, bias=False, mode=mode)
    with torch.no_grad():
        layer.weight.copy_(w)
    x = torch.randn(M, K).requires_grad_()
    layer(x).backward(g)
    want = g.double() @ w.double()
    return 10 * torch.log10(want.square().sum() / (x.grad.double() - want).square().sum()).item()


for name, change in PROFILES.items():
    sums = dict.fromkeys(MODES, 0.0)
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        w = change(torch.randn(N, K))
        g = torch.randn(M, N)
        for mode in MODES:
            sums[mode] += ratio(mode, w, g)
    print(f"{name:>20}", *(f"{mode} {sums[mode] / SEEDS:.1f}" for mode in MODES), sep="  ")
