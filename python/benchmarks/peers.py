#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forwards of int8 linear layers compared with those of other libraries that PyTorch can call.

Every library multiplies the same X by the same W. It quantizes and packs W beforehand; X is quantized in
the call. The other libraries: `fbgemm` and `onednn`, the engines of torch.ops.quantized (one scale
for X, one for each row of W), `zentorch` where it is installed (one scale for each row of X), and
`bfloat16`, nn.functional.linear. This library: the C call of a layer in mode rowwise, prepared for
eval, made through ctypes. X and Y are f32, or bfloat16 with --dtype where a library supports it.

Blocks of calls of all libraries alternate, with a pause between them in which threads that wait for work
go to sleep. It prints this library's median time. For each other library it prints the median ratio of its
time to this library's in neighbouring blocks, with half the distance between the quartiles: above 1 this
library is faster. A result that is further from the f32 product than int8 can be is reported as wrong.
"""

import argparse
import ctypes
import statistics
import time
import warnings

import torch

import switchback
from switchback import _abi
from switchback.nn import SwitchBackLinearVectorwise

from layer import shape_of  # benchmarks/layer.py

try:
    import zentorch
except ImportError:
    zentorch = None

SHAPES = [f"{m},{k},{n}" for k, n in ((1024, 4096), (4096, 4096), (4096, 11008)) for m in (1, 16)]
PAUSE = 0.01  # seconds
# The largest relative error of a correct result for normal elements: W is rounded to 1/127 of a row's
# absmax, X to 1/255 of its whole range.
WRONG = 0.03


def ours(module, x):
    """Returns a function that calls a layer of this library through ctypes, and returns Y."""
    module = module.prepare_for_eval()
    with torch.no_grad():
        module(x)
    layer = module._layers.latest
    y = torch.empty(x.shape[0], module.out_features, dtype=x.dtype)
    dtype = {torch.float32: _abi.F32, torch.bfloat16: _abi.BF16}[x.dtype]
    structs = [_abi.Matrix(t.data_ptr(), dtype, *t.shape, t.shape[1]) for t in (x, y)]
    at = [ctypes.addressof(s) for s in structs]
    call, pointer = layer._lib.switchback_linear_forward, layer.pointer

    def forward(keep=(module, layer, structs)):
        call(pointer, at[0], at[1], _abi.SAVE_NOTHING, None)
        return y

    return forward


def torch_engine(name, weight, bias, x):
    """Returns a function that runs the dynamic linear operation of an engine of torch.ops.quantized."""
    if x.dtype != torch.float32 or name not in torch.backends.quantized.supported_engines:
        return None
    torch.backends.quantized.engine = name
    scales = (weight.abs().amax(1) / 127).double()
    zero = torch.zeros(len(scales), dtype=torch.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its deprecation warning
        codes = torch.quantize_per_channel(weight.float(), scales, zero, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(codes, bias.float())

    def forward():
        return torch.ops.quantized.linear_dynamic(x, packed, reduce_range=False)

    return forward


def zentorch_op(weight, bias, x):
    """Returns a function that runs zentorch's linear operation, which has a scale for each row of X."""
    if zentorch is None:
        return None
    scales = weight.float().abs().amax(1) / 127
    codes = (weight.float() / scales[:, None]).round().to(torch.int8)
    packed = torch.ops.zentorch.zentorch_weight_prepack_for_dynamic_qlinear(codes)
    scales = scales.to(x.dtype)

    def forward():
        return torch.ops.zentorch.zentorch_dynamic_qlinear(
            x, packed, scales, bias, is_weight_prepacked=True
        )

    return forward


def block(function, calls):
    """Times a block of calls; returns the seconds per call."""
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


def compare(shape, dtype, names, rounds, min_time):
    """Compares the libraries for one shape, and prints its line."""
    rows, k, n = shape
    torch.manual_seed(0)
    x = torch.randn(rows, k, dtype=dtype)
    module = SwitchBackLinearVectorwise(k, n, dtype=dtype).eval()
    weight, bias = module.weight.detach().clone(), module.bias.detach().clone()
    want = torch.nn.functional.linear(x.float(), weight.float(), bias.float())
    narrow = [t.bfloat16() for t in (x, weight, bias)]
    make = {
        "fbgemm": lambda: torch_engine("fbgemm", weight, bias, x),
        "onednn": lambda: torch_engine("onednn", weight, bias, x),
        "zentorch": lambda: zentorch_op(weight, bias, x),
        "bfloat16": lambda: lambda: torch.nn.functional.linear(*narrow),
    }
    sides = {name: make[name]() for name in names}
    sides = {"switchback": ours(module, x)} | {name: f for name, f in sides.items() if f}
    wrong, calls = set(), {}
    for name, function in sides.items():
        error = (function().float() - want).norm() / want.norm()
        if not error < WRONG:
            wrong.add(name)
        block(function, 3)
        once = min(block(function, 1) for _ in range(5))
        calls[name] = max(2, int(min_time / once))
    times = {name: [] for name in sides}
    order = list(sides)
    for _ in range(rounds):
        for name in order:
            time.sleep(PAUSE)
            block(sides[name], 1)
            times[name].append(block(sides[name], calls[name]))
        order.reverse()
    line = f"{rows:>5},{k},{n:<6} {statistics.median(times['switchback']) * 1e6:9.1f} us"
    for name in list(sides)[1:]:
        ratios = [theirs / mine for theirs, mine in zip(times[name], times["switchback"])]
        low, middle, high = statistics.quantiles(ratios, n=4)
        line += f"   {name} {middle:5.2f} +-{(high - low) / 2:.2f}"
        line += " (wrong result)" if name in wrong else ""
    print(line + (" ITSELF WRONG" if "switchback" in wrong else ""), flush=True)


def main():
    every = ["fbgemm", "onednn", "zentorch", "bfloat16"]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", type=shape_of, nargs="+", default=[shape_of(s) for s in SHAPES])
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--peers", nargs="+", default=every, choices=every)
    parser.add_argument("--threads", type=int, default=0, help="of all sides; 0: torch's number")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--min-time", type=float, default=0.01, help="seconds a block")
    options = parser.parse_args()
    if options.threads > 0:
        torch.set_num_threads(options.threads)
    switchback.set_num_threads(torch.get_num_threads())
    print(
        f"torch {torch.__version__}, zentorch {zentorch.__version__ if zentorch else 'absent'}, "
        f"switchback {switchback.library_version()}, {options.dtype}, "
        f"{torch.get_num_threads()} thread(s); times of others / time of switchback"
    )
    for shape in options.shape:
        with torch.no_grad():
            dtype = getattr(torch, options.dtype)
            compare(shape, dtype, options.peers, options.rounds, options.min_time)


if __name__ == "__main__":
    main()
