#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Host microseconds of eager calls of a small layer and of torch.nn.Linear.

It times the forward in eval, the forward that autograd records, forward and backward, and for frozen
weights (in a prepared layer) the forward alone and with dX. On a CUDA device host time is the time until
the calls return. Between samples, outside of the times, the script waits for the device, so that its
queue stays short. A sample is the mean of a few calls. Samples of the two layers alternate. It prints
medians with half the distance between the quartiles, and the same for the ratios of neighbouring samples.
SWITCHBACK_DISPATCH=ctypes turns the compiled dispatch off.
"""

import argparse
import statistics
import time

import torch

import switchback
from switchback import nn as sb

DTYPES = ("float32", "bfloat16", "float16")


def sample(function, calls, wait):
    """Times some calls; returns the microseconds per call."""
    wait()
    start = time.perf_counter_ns()
    for _ in range(calls):
        function()
    return (time.perf_counter_ns() - start) / calls / 1000


def middle(values):
    """Returns the median and half the distance between the quartiles."""
    low, median, high = statistics.quantiles(values, n=4)
    return median, (high - low) / 2


def compare(label, ours, theirs, options, wait):
    """Times a call of our layer and of nn.Linear, and prints a line of the table."""
    for function in (ours, theirs):
        sample(function, 3 * options.calls, wait)
    pairs = []
    for turn in range(options.samples):
        order = (ours, theirs) if turn % 2 == 0 else (theirs, ours)
        times = [sample(function, options.calls, wait) for function in order]
        pairs.append(times if turn % 2 == 0 else times[::-1])
    columns = [*zip(*pairs), [a / b for a, b in pairs]]
    cells = ["{:9.2f} +-{:6.2f}".format(*middle(column)) for column in columns]
    print(f"{label:22}", *cells, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--dtype", choices=DTYPES, help="default: bfloat16, on the CPU float32")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--features", type=int, default=64, help="of inputs and of outputs")
    parser.add_argument("--mode", default="rowwise", help="of SwitchBackLinear")
    parser.add_argument("--dw", default="floating", help="of SwitchBackLinear")
    parser.add_argument("--samples", type=int, default=201)
    parser.add_argument("--calls", type=int, default=10, help="per sample")
    options = parser.parse_args()

    device = torch.device(options.device)
    dtype = getattr(torch, options.dtype or ("float32" if device.type == "cpu" else "bfloat16"))
    wait = (lambda: None) if device.type == "cpu" else torch.cuda.synchronize
    torch.set_num_threads(1)
    torch.manual_seed(0)
    made = {"device": device, "dtype": dtype}
    linear = torch.nn.Linear(options.features, options.features, **made)
    layer = sb.SwitchBackLinear(
        options.features, options.features, mode=options.mode, dw=options.dw, **made
    )
    x, g = (torch.randn(options.rows, options.features, **made) for _ in range(2))
    wanting = x.clone().requires_grad_()

    def step(module, *parameters):
        wanted = [wanting, *parameters]
        return lambda: torch.autograd.grad(module(wanting), wanted, g)

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    print(
        f"{name}, torch {torch.__version__}, switchback {switchback.library_version()}, dispatch "
        f"{sb.dispatch_path()}, {options.rows}x{options.features}x{options.features} {dtype}, mode "
        f"{options.mode}, dw {options.dw}; host microseconds"
    )
    print(f"{'':22} {'switchback':>19} {'nn.Linear':>19} {'ratio':>19}")
    with torch.no_grad():
        compare("forward in eval", lambda: layer(x), lambda: linear(x), options, wait)
    compare("forward, recorded", lambda: layer(wanting), lambda: linear(wanting), options, wait)
    steps = (step(module, *module.parameters()) for module in (layer, linear))
    compare("forward and backward", *steps, options, wait)
    if options.mode not in ("standard", "auto"):
        prepared, frozen = layer.requires_grad_(False).prepare_for_eval(), linear.requires_grad_(False)
        with torch.no_grad(), sb.reuse_weight_codes():
            compare("forward, prepared", lambda: prepared(x), lambda: frozen(x), options, wait)
        compare("prepared, and dX", step(prepared), step(frozen), options, wait)


if __name__ == "__main__":
    main()
