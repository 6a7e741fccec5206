#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a call of the Python layer costs beyond the library's own call.

Times a small layer's module(x) and module(x).backward(g) against the ctypes calls they end in, with
arguments built beforehand. Groups of calls of both are interleaved. Printed are the medians and the
median difference of neighbours, with half the distance between its quartiles as the noise. Calls go
through compiled code where there is some; SWITCHBACK_DISPATCH=ctypes turns it off. What the same calls
cost next to torch.nn.Linear's is what host_time.py measures.

What the library's own calls cost without Python is what `switchback-bench micro call` measures, on a
layer of the same 8 x 64 x 64.
"""

import argparse
import ctypes
import statistics
import time

import torch

import switchback
from switchback import _abi
from switchback.nn import SwitchBackLinearVectorwise, dispatch_path, reuse_weight_codes


def per_call(function, calls):
    """Microseconds per call."""
    start = time.perf_counter_ns()
    for _ in range(calls):
        function()
    return (time.perf_counter_ns() - start) / calls / 1000


def pairs_of(ours, other, rounds, calls):
    """Times of both, one after the other, in turns."""
    for function in (ours, other):
        per_call(function, calls)
    pairs = []
    for turn in range(rounds):
        order = (ours, other) if turn % 2 == 0 else (other, ours)
        times = [per_call(function, calls) for function in order]
        pairs.append(tuple(times) if turn % 2 == 0 else tuple(reversed(times)))
    return pairs


def compare(label, ours, other, rounds, calls):
    """Prints medians of both and of the difference of neighbours."""
    pairs = pairs_of(ours, other, rounds, calls)
    low, middle, high = statistics.quantiles([a - b for a, b in pairs], n=4)
    ours, other = (statistics.median(side) for side in zip(*pairs))
    print(
        f"{label:32} module {ours:7.2f}  call {other:7.2f}  overhead {middle:7.2f} us  "
        f"(+- {(high - low) / 2:.2f})"
    )


class Bare:
    """The library's calls for one layer, without anything around them."""

    def __init__(self, module, x, g):
        with torch.no_grad():
            module(x)
        layer = module._layers.latest
        library, self.pointer, self.keep = layer._lib, layer.pointer, (layer, x, g)
        rows, k, n = x.shape[0], module.in_features, module.out_features
        self.y, self.dx = torch.empty(rows, n), torch.empty(rows, k)
        self.dw, self.db = torch.empty(n, k), torch.empty(n)

        def matrix(tensor, height, width):
            return _abi.Matrix(tensor.data_ptr(), _abi.F32, height, width, width)

        self.structs = (matrix(x, rows, k), matrix(self.y, rows, n))
        self.grads = _abi.LinearGrads(
            g=matrix(g, rows, n),
            dx=matrix(self.dx, rows, k),
            dw=matrix(self.dw, n, k),
            db=matrix(self.db, 1, n),
        )
        self.x, self.out = map(ctypes.addressof, self.structs)
        self.grads_at = ctypes.addressof(self.grads)
        self.run_forward = library.switchback_linear_forward
        self.run_backward = library.switchback_linear_backward_from
        self.updated = library.switchback_linear_weight_updated

    def forward(self):
        self.run_forward(self.pointer, self.x, self.out, _abi.SAVE_NOTHING)

    def forward_and_backward(self):
        # As the module after a backward: the weight counts as changed.
        self.updated(self.pointer)
        self.run_forward(self.pointer, self.x, self.out, _abi.SAVE_CALLER)
        self.run_backward(self.pointer, self.grads_at, self.x, None)

    def forward_that_saves(self):
        self.run_forward(self.pointer, self.x, self.out, _abi.SAVE_CALLER)


def measure(rows, features, rounds, calls):
    """Prints four lines for one number of rows."""
    torch.manual_seed(0)
    module = SwitchBackLinearVectorwise(features, features)
    x, g = torch.randn(rows, features), torch.randn(rows, features)
    wanting = x.clone().requires_grad_()
    parameters = [wanting, module.weight, module.bias]
    module.eval()
    bare = Bare(module, x, g)
    shape = f"{features}x{features}, M={rows}"

    def step():
        return torch.autograd.grad(module(wanting), parameters, g)

    with torch.no_grad():
        compare(f"{shape}: forward, no_grad", lambda: module(x), bare.forward, rounds, calls)
        with reuse_weight_codes():
            label = f"{shape}: the same, codes reused"
            compare(label, lambda: module(x), bare.forward, rounds, calls)
    module.train()
    module(wanting)
    compare(
        f"{shape}: forward, recorded",
        lambda: module(wanting),
        bare.forward_that_saves,
        rounds,
        calls,
    )
    compare(f"{shape}: forward and backward", step, bare.forward_and_backward, rounds, calls)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument("--calls", type=int, default=100, help="per round and side")
    options = parser.parse_args()

    torch.set_num_threads(1)
    switchback.set_num_threads(1)
    print(
        f"torch {torch.__version__}, switchback {switchback.library_version()}, dispatch "
        f"{dispatch_path()}, microseconds per call"
    )
    for rows in options.rows:
        measure(rows, options.features, options.rounds, options.calls)


if __name__ == "__main__":
    main()
