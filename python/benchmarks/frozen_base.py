#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The frozen base of a LoRA: a prepared int8 layer, with and without a rotation, against nn.Linear.

For each shape it times the forward, and the forward with the gradient of its input, which is what a LoRA
step needs of its base. Calls of all layers alternate. With --device cuda the calls are replayed from CUDA
graphs, or made one by one with --eager, and memory that does not fit into the L2 cache is written before
each of them.

It prints nn.Linear's median time, and for the other layers the median ratio of its time to theirs in the
same round, with half the distance between the quartiles: above 1 int8 is faster.
"""

import argparse
import time

import torch
from layer import compared, shape_of  # benchmarks/layer.py

import switchback
import switchback.nn as sb

SHAPES = ["16384,5120,5120", "4608,3072,12288", "4608,12288,3072", "4096,4096,4096", "1024,4096,4096",
          "512,4096,4096"]  # fmt: skip


class Timer:
    """Times calls on a device."""

    def __init__(self, device):
        self.cuda = device.type == "cuda"
        self.flush = torch.empty(256 << 20, dtype=torch.int8, device=device) if self.cuda else None

    def seconds(self, function) -> float:
        if not self.cuda:
            begin = time.perf_counter()
            function()
            return time.perf_counter() - begin
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.flush.zero_()
        begin.record()
        function()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / 1e3


def graph_of(function):
    """A function that replays a CUDA graph of a call. The function keeps alive what the call uses."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return lambda keep=function: graph.replay()


def calls_of(layer, x, g, graphs: bool) -> dict:
    wanting = x.clone().requires_grad_()

    def forward():
        with torch.no_grad():
            layer(x)

    def both():
        wanting.grad = None
        layer(wanting).backward(g)

    calls = {"forward": forward, "forward and dX": both}
    return {what: graph_of(call) for what, call in calls.items()} if graphs else calls


def layers_of(k: int, n: int, rotation: int, device, dtype) -> dict:
    """nn.Linear and layers that were prepared from its weight, all frozen."""
    linear = torch.nn.Linear(k, n, device=device, dtype=dtype)
    layers = {"nn.Linear": linear}
    for name, group in (("int8", 0), (f"rotated by {rotation}", rotation)):
        layer = sb.SwitchBackLinear(k, n, device=device, dtype=dtype, mode="rowwise", rotation=group)
        layer.load_state_dict(linear.state_dict())
        layer.eval().prepare_for_eval()
        layers[name] = layer
    for layer in layers.values():
        layer.requires_grad_(False)
    return layers


def compare(options, shape) -> None:
    m, k, n = shape
    torch.manual_seed(0)
    make = {"device": options.device, "dtype": getattr(torch, options.dtype)}
    x, g = torch.randn(m, k, **make), torch.randn(m, n, **make)
    layers = layers_of(k, n, options.rotation, options.device, make["dtype"])
    timer = Timer(options.device)
    graphs = timer.cuda and not options.eager
    calls = {name: calls_of(layer, x, g, graphs) for name, layer in layers.items()}
    for what in ("forward", "forward and dX"):
        times = {name: [] for name in layers}
        order = list(layers)
        for _ in range(3 + options.rounds):
            for name in order:
                times[name].append(timer.seconds(calls[name][what]))
            order.reverse()
        times = {name: each[3:] for name, each in times.items()}  # without those that warm up
        print(f"{m}x{k}x{n} {what:15}", compared(times), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shape", type=shape_of, nargs="+", default=[shape_of(s) for s in SHAPES])
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--rotation", type=int, default=256, choices=(4, 16, 64, 256, 1024))
    parser.add_argument("--device", type=torch.device, default="cpu")
    parser.add_argument("--eager", action="store_true", help="no CUDA graphs")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    where = torch.cuda.get_device_name(options.device) if options.device.type == "cuda" else "CPU"
    print(f"torch {torch.__version__}, switchback {switchback.library_version()}, {options.dtype}, {where}")
    for shape in options.shape:
        compare(options, shape)


if __name__ == "__main__":
    main()
