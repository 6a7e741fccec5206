#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost in inference of checking that the weight's codes are still those of the weight.

Times forwards of one layer, interleaved: by default (a fingerprint of the weight), in
reuse_weight_codes() (no fingerprint), with the weight quantized every time (as where there are no
fingerprints), and prepared for eval, with and without the check of its codes. It also times the
fingerprint and the quantization of the weight alone. It prints medians of a thread's CPU time, in
microseconds, which other programs disturb less than elapsed time.
"""

import argparse
import ctypes
import statistics
import time

import torch

import switchback
from switchback import _abi
from switchback.nn import SwitchBackLinearVectorwise, reuse_weight_codes


def fingerprint_of(module, x):
    """Returns a function that computes the fingerprint of a module's weight; the module must have been
    called."""
    layer = module._layers.latest
    rows, cols = module.weight.shape
    code = {torch.float32: _abi.F32, torch.float16: _abi.F16, torch.bfloat16: _abi.BF16}[x.dtype]
    matrix = _abi.Matrix(module.weight.data_ptr(), code, rows, cols, cols)
    out, keep = (ctypes.c_uint64 * 2)(), (module, layer)
    function, pointer, at = layer._lib.switchback_fingerprint, layer.context.pointer, matrix
    return lambda: (function(pointer, ctypes.byref(at), out), keep)


def race(functions, rounds, seconds):
    """Calls the functions alternately; returns the median microseconds of each."""
    times = {name: [] for name in functions}
    calls = {}
    for name, function in functions.items():
        function()
        start = time.process_time()
        function()
        calls[name] = max(1, int(seconds / max(1e-6, time.process_time() - start)))
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.process_time()
            for _ in range(calls[name]):
                function()
            times[name].append((time.process_time() - start) / calls[name] * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def measure(rows, k, n, dtype, rounds, seconds):
    x = torch.randn(rows, k, dtype=dtype)
    module = SwitchBackLinearVectorwise(k, n, dtype=dtype).eval()
    prepared = SwitchBackLinearVectorwise(k, n, dtype=dtype).eval().prepare_for_eval()
    module(x)

    def reused():
        with reuse_weight_codes():
            module(x)

    def prepared_reused():
        with reuse_weight_codes():
            prepared(x)

    def again():
        module.weight_updated()
        with reuse_weight_codes():
            module(x)

    times = race(
        {
            "default": lambda: module(x),
            "reused": reused,
            "again": again,
            "prepared": lambda: prepared(x),
            "prepared, reused": prepared_reused,
            "fingerprint": fingerprint_of(module, x),
            "quantize": lambda: switchback.quantize_rowwise(module.weight),
        },
        rounds,
        seconds,
    )
    cells = "  ".join(f"{name} {value:8.1f}" for name, value in times.items())
    print(f"{rows:5} x {k:5} -> {n:5} {str(dtype)[6:]:8} {cells}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.02, help="of a group of calls")
    parser.add_argument("--shape", action="append", help="M,K,N; may be repeated")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    default = ["1,768,768", "1,4096,4096", "16,4096,4096", "256,1024,4096", "1024,1024,4096"]
    with torch.no_grad():
        for shape in options.shape or default:
            sizes = map(int, shape.split(","))
            measure(*sizes, getattr(torch, options.dtype), options.rounds, options.seconds)


if __name__ == "__main__":
    main()
