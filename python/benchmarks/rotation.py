# SPDX-License-Identifier: Apache-2.0
"""Accuracy of int8 products with and without rotation: the table in docs/numerics.md.

    PYTHONPATH=python SWITCHBACK_LIBRARY=build/release/lib/libswitchback.so \
        python3 python/benchmarks/rotation.py [--inner K] [--seeds N]

Each line is for a distribution of the elements of X[256,K] and W[256,K]. It has the signal-to-noise ratio
of Y = X W^T against f64, in dB, for a layer in mode rowwise: without rotation, and with rotation in groups
of each size. Figures are the mean over the seeds and the largest distance from it.
"""

import argparse
import math

import torch

from switchback import nn

GROUPS = (0, 4, 16, 64, 256, 1024)
ROWS = 256


def student_t3(*shape):
    """Random elements with Student's t distribution, 3 degrees of freedom: x = z / sqrt(chi^2_3 / 3)."""
    chi = torch.randn(3, *shape).square().sum(0)
    return torch.randn(*shape) / (chi / 3).sqrt()


def outlier_columns(rows, inner):
    """Normal elements, where one column in a thousand is 20 times as large."""
    x = torch.randn(rows, inner)
    x[:, torch.randperm(inner)[: max(1, inner // 1000)]] *= 20
    return x


PROFILES = {
    "iid normal": (torch.randn, torch.randn),
    "0.1 % of X's columns x 20": (outlier_columns, torch.randn),
    "Student t(3), X": (student_t3, torch.randn),
    "Student t(3), X and W": (student_t3, student_t3),
}


def snr(x, w, rotation):
    layer = nn.SwitchBackLinear(
        w.shape[1], w.shape[0], bias=False, mode="rowwise", rotation=rotation
    ).eval()
    with torch.no_grad():
        layer.weight.copy_(w)
        y = layer(x).double()
    exact = x.double() @ w.double().T
    return 10 * math.log10(exact.square().sum() / (y - exact).square().sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inner", type=int, default=4096, help="K, a multiple of 1024 (4096)")
    parser.add_argument("--seeds", type=int, default=3, help="repetitions (3)")
    arguments = parser.parse_args()
    names = ["plain"] + [f"g = {group}" for group in GROUPS[1:]]
    print(f"{'SNR in dB, K = ' + str(arguments.inner):28}" + "".join(f"{n:>14}" for n in names))
    for profile, (make_x, make_w) in PROFILES.items():
        found = {group: [] for group in GROUPS}
        for seed in range(arguments.seeds):
            torch.manual_seed(seed)
            x, w = make_x(ROWS, arguments.inner), make_w(ROWS, arguments.inner)
            for group in GROUPS:
                found[group].append(snr(x, w, group))
        cells = []
        for values in found.values():
            mean = sum(values) / len(values)
            spread = max(abs(value - mean) for value in values)
            cells.append(f"{f'{mean:.1f} ± {spread:.1f}':>14}")
        print(f"{profile:28}" + "".join(cells))


if __name__ == "__main__":
    main()
