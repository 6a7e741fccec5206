#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether int8 pays in PyTorch here: layers of switchback against nn.Linear, shape by shape.

For each shape it times nn.Linear and each switchback layer, alternately, in three cases. Inference: the
forward with no_grad, in reuse_weight_codes(), where it does not check the weight. Checked: the same
forward outside of that block, which verifies that the weight did not change. Training: a step (forward,
backward, and a change of the weight as an optimizer makes it).

It prints nn.Linear's median time. For the other layers it prints the median ratio of nn.Linear's time to
theirs in neighbouring runs, with half the distance between its quartiles.
"""

import argparse
import statistics
import time

import torch

import switchback
import switchback.nn as sb

LAYERS = {
    "vectorwise": sb.SwitchBackLinearVectorwise,
    "global": sb.SwitchBackLinearGlobal,
    "mem_efficient": sb.SwitchBackLinearGlobalMemEfficient,
    "standard": sb.StandardLinear,
}
SHAPES = ["1,4096,4096", "16,4096,4096", "256,1024,4096", "1024,1024,4096", "4096,1408,6144"]


def shape_of(text):
    """Parses a shape "M,K,N" to (M, K, N)."""
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if len(sizes) != 3 or min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not M,K,N: three positive numbers")
    return sizes


def seconds(function):
    """The seconds of one call, until the device has finished it."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def compared(times: dict) -> str:
    """A text with nn.Linear's median time, and how many times as fast the others are in the same round.

    times: the seconds of each round, by name.
    """
    base = times["nn.Linear"]
    words = [f"nn.Linear {statistics.median(base) * 1e3:9.3f} ms"]
    for name, each in times.items():
        if name != "nn.Linear":
            low, middle, high = statistics.quantiles([b / t for b, t in zip(base, each)], n=4)
            words.append(f"{name} {middle:5.2f}x +-{(high - low) / 2:.2f}")
    return "   ".join(words)


def runs(module, x, g):
    """The functions to time for a module: forward in inference, the forward that checks the weight,
    training step."""

    def checked():
        with torch.no_grad():
            module.eval()(x)

    def forward():
        with sb.reuse_weight_codes():
            checked()

    def step():
        module.train()
        wanting = x.detach().requires_grad_()
        module(wanting).backward(g)
        with torch.no_grad():  # like SGD with rate 0: the weight counts as changed
            module.weight.add_(module.weight.grad, alpha=0.0)
        module.weight.grad = module.bias.grad = None

    return {"forward": forward, "checked": checked, "step": step}


def compare(shape, dtype, device, names, min_time):
    """Times the layers with one shape, and prints three lines."""
    rows, k, n = shape
    torch.manual_seed(0)
    make = {"nn.Linear": torch.nn.Linear, **{name: LAYERS[name] for name in names}}
    modules = {name: kind(k, n, device=device, dtype=dtype) for name, kind in make.items()}
    x = torch.randn(rows, k, device=device, dtype=dtype)
    g = torch.randn(rows, n, device=device, dtype=dtype) * 0.01
    functions = {name: runs(module, x, g) for name, module in modules.items()}
    for what in ("forward", "checked", "step"):
        for _ in range(2):  # warm
            longest = max(seconds(functions[name][what]) for name in make)
        rounds = max(5, min(200, int(min_time / (longest * len(make)))))
        times = {name: [] for name in make}
        order = list(make)
        for _ in range(rounds):
            for name in order:
                times[name].append(seconds(functions[name][what]))
            order.reverse()
        print(f"{rows:>6}/{k}/{n:<6} {what:8}", compared(times), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", type=shape_of, nargs="+", default=[shape_of(s) for s in SHAPES])
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--layers", nargs="+", default=["vectorwise", "global"], choices=LAYERS)
    parser.add_argument("--threads", type=int, default=0, help="of both sides; 0: torch's number")
    parser.add_argument("--min-time", type=float, default=3.0, help="seconds a line")
    arguments = parser.parse_args()
    if arguments.threads > 0:
        torch.set_num_threads(arguments.threads)
        switchback.set_num_threads(arguments.threads)
    print(
        f"torch {torch.__version__}, switchback {switchback.library_version()}, {arguments.dtype}, "
        f"{arguments.device}, {torch.get_num_threads()} thread(s); how many times as fast as nn.Linear"
    )
    for shape in arguments.shape:
        compare(
            shape,
            getattr(torch, arguments.dtype),
            arguments.device,
            arguments.layers,
            arguments.min_time,
        )


if __name__ == "__main__":
    main()
