#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The backend "switchback" of comfy-kitchen's int8_linear, compared with others and with nn.Linear.

It measures the layers of image and video models, with or without ConvRot. Calls of all backends and of
nn.Linear alternate, in an order that changes. It prints the median time of this library. For each of the
others it prints the median ratio of its time to this library's in the same round, with half the distance
between the quartiles: above 1 this library is faster.
--calls: calls in a row, after which a GPU is waited for, as a model makes them. With 1, the time of a call
includes all of the host's.
--what: also the product's share of a call, and the SNR of y against float64 products.
--block: a whole block of a diffusion transformer (attention and perceptron) instead of one layer.
--accuracy: no times, but the SNR of weights and outputs of each backend against float64.
"""

import argparse
import importlib.metadata
import statistics
import sys
import time

sys.path.pop(0)  # removes this folder, where `import comfy_kitchen` would find this file

import torch
from comfy_kitchen.registry import registry
from comfy_kitchen.tensor import QuantizedTensor
from torch import nn
from torch.nn import functional

import switchback
from switchback import ops
from switchback.interop import comfy_kitchen as backend

GROUP = 256
LAYERS = {  # (K, N) of layers in known models
    "flux qkv": (3072, 9216),
    "flux out": (3072, 3072),
    "flux up": (3072, 12288),
    "flux down": (12288, 3072),
    "flux single": (15360, 3072),
    "wan": (5120, 5120),
    "wan up": (5120, 13824),
    "wan down": (13824, 5120),
    "krea up": (6144, 16384),
}


def interleaved(sides: dict, options) -> dict:
    """Times functions in rounds, in an order that changes; returns the seconds of a call by name."""
    device = options.device
    times = {name: [] for name in sides}
    names = list(sides)
    for call in sides.values():
        call()
    for place in range(options.rounds):
        turn = place % len(names)
        for name in names[turn:] + names[:turn]:
            synchronize(device)
            begin = time.perf_counter()
            for _ in range(options.calls):
                sides[name]()
            synchronize(device)
            times[name].append((time.perf_counter() - begin) / options.calls)
    return times


def synchronize(device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def told(times: dict, base: str) -> str:
    """A text with the median time of `base`, and the times of the others as multiples of it."""
    words = [f"{statistics.median(times[base]) * 1e3:9.2f} ms"]
    for name, each in times.items():
        if name != base:
            ratios = [a / b for a, b in zip(each, times[base])]
            low, middle, high = statistics.quantiles(ratios, n=4)
            words.append(f"{name} {middle:.2f} ±{(high - low) / 2:.2f}")
    return "  ".join(words)


def implementations(arguments: dict) -> dict:
    """The function int8_linear of each backend that supports this call, by the backend's name."""
    found = {}
    for name in ["switchback", *registry.list_backends()]:
        if name not in found and registry.validate_backend_for_call(name, "int8_linear", arguments).success:
            found[name] = registry.get_implementation("int8_linear", backend=name)
    return found


def layer(options, k: int, n: int, m: int, rotated: bool) -> None:
    x, arguments, linear = layer_of(options, k, n, m, rotated)
    sides = {
        name: (lambda call=call: call(**arguments)) for name, call in implementations(arguments).items()
    }
    sides["bf16"] = lambda: linear(x)
    times = interleaved(sides, options)
    print(f"{m:6} {k:6} {n:6} {'convrot' if rotated else 'plain':8}", told(times, "switchback"), flush=True)
    if options.what:
        tell_parts(options, arguments, linear, statistics.median(times["switchback"]))


def layer_of(options, k: int, n: int, m: int, rotated: bool):
    torch.manual_seed(0)
    device = options.device
    x = torch.randn(m, k, dtype=torch.bfloat16, device=device)
    linear = nn.Linear(k, n, device=device, dtype=torch.bfloat16).requires_grad_(False)
    name = "quantize_int8_convrot_weight" if rotated else "quantize_int8_rowwise"
    codes, scale = getattr(backend, name)(linear.weight, *((GROUP,) if rotated else ()))
    arguments = {
        "x": x,
        "weight": codes,
        "weight_scale": scale,
        "bias": linear.bias,
        "out_dtype": x.dtype,
        "convrot": rotated,
        "convrot_groupsize": GROUP,
    }
    return x, arguments, linear


def tell_parts(options, arguments: dict, linear, whole: float) -> None:
    """Prints how long the parts of a call take, and how accurate its result is."""
    x, weight = arguments["x"], arguments["weight"]
    rotation = GROUP if arguments["convrot"] else 0
    codes, absmax = backend.codes_of(x, rotation)
    scales = arguments["weight_scale"].reshape(-1) * 127
    arranged = backend._packed.of(weight) if x.is_cpu else weight
    parts = {
        "quantize": lambda: backend.codes_of(x, rotation),
        "product": lambda: ops.gemm_dequantize(codes, arranged, absmax, scales, linear.bias, x.dtype),
    }
    if x.is_cpu:
        parts["fingerprint"] = lambda: backend._packed.of(weight)
    times = interleaved(parts, options)
    shares = {name: statistics.median(each) / whole for name, each in times.items()}
    print("       ", "  ".join(f"{name} {share:.0%}" for name, share in shares.items()), end="  SNR, dB:")
    want = functional.linear(x[:64].double(), linear.weight.double(), linear.bias.double())
    for name, call in implementations(arguments).items():
        y = call(**{**arguments, "x": x[:64]}).double()
        print(f"  {name} {20 * torch.log10(want.norm() / (y - want).norm()):.1f}", end="")
    print(flush=True)


class Block(nn.Module):
    """A block of a diffusion transformer, whose attention and perceptron have a modulation each."""

    def __init__(self, width: int, heads: int, device):
        super().__init__()
        self.heads = heads
        make = {"device": device, "dtype": torch.bfloat16}
        self.qkv, self.out = nn.Linear(width, 3 * width, **make), nn.Linear(width, width, **make)
        self.up, self.down = nn.Linear(width, 4 * width, **make), nn.Linear(4 * width, width, **make)
        self.modulation = nn.Parameter(torch.randn(4, width, **make) / 10)

    def forward(self, x):
        shift, scale, shift_up, scale_up = self.modulation
        normed = functional.layer_norm(x, x.shape[-1:]) * (1 + scale) + shift
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(normed).chunk(3, -1)
        )
        attended = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.out(attended)
        normed = functional.layer_norm(x, x.shape[-1:]) * (1 + scale_up) + shift_up
        return x + self.down(functional.gelu(self.up(normed), approximate="tanh"))


def block(options, width: int, m: int) -> None:
    torch.manual_seed(0)
    plain = Block(width, width // 128, options.device).requires_grad_(False)
    quantized = Block(width, width // 128, options.device).requires_grad_(False)
    quantized.load_state_dict(plain.state_dict())
    for part in (quantized.qkv, quantized.out, quantized.up, quantized.down):
        made = QuantizedTensor.from_float(
            part.weight, "TensorWiseINT8Layout", per_channel=True, convrot=True, convrot_groupsize=GROUP
        )
        part.weight = nn.Parameter(made, requires_grad=False)
    x = torch.randn(1, m, width, dtype=torch.bfloat16, device=options.device)

    def through(name):
        def call():
            with registry.use_backend(name):
                quantized(x)

        return call

    offered = [name for name, about in registry.list_backends().items()
               if about["available"] and "int8_linear" in about["capabilities"]]  # fmt: skip
    sides = {"switchback": through("switchback"), **{n: through(n) for n in offered if n != "switchback"}}
    sides["bf16"] = lambda: plain(x)
    print(f"{m:6} block of {width:6}", told(interleaved(sides, options), "switchback"))


def accuracy() -> None:
    """Prints the accuracy of each backend when it quantizes a weight and multiplies it by x of the same
    dtype."""
    m = n = 256
    k, seeds = 4096, 3
    print("SNR in dB, mean of seeds: dequantized weight / y")
    for kind in ("normal", "outliers", "student"):
        for dtype in (torch.float32, torch.bfloat16):
            for group in (0, GROUP):
                means = {}
                for seed in range(seeds):
                    torch.manual_seed(seed)
                    x, weight = inputs(kind, m, k), torch.randn(n, k, dtype=torch.float64)
                    for name in ("switchback", "eager"):
                        found = snr_of(name, x.to(dtype), weight.to(dtype), x, weight, group)
                        means.setdefault(name, []).append(found)
                words = [
                    f"{name} " + " / ".join(f"{statistics.mean(each):.1f}" for each in zip(*found))
                    for name, found in means.items()
                ]
                print(f"{kind:9} {dtype!s:15} group {group:4}  ", "   ".join(words), flush=True)


def inputs(kind: str, m: int, k: int):
    if kind == "student":
        return torch.distributions.StudentT(3.0).sample((m, k)).double()
    x = torch.randn(m, k, dtype=torch.float64)
    if kind == "outliers":
        x[:, :4] *= 20
    return x


def snr_of(name: str, x, weight, exact_x, exact_weight, group: int) -> tuple[float, float]:
    with registry.use_backend(name):
        options = {"per_channel": True, "convrot": bool(group), "convrot_groupsize": group or GROUP}
        quantized = QuantizedTensor.from_float(weight, "TensorWiseINT8Layout", **options)
        pairs = (
            (quantized.dequantize(), exact_weight),
            (functional.linear(x, quantized), exact_x @ exact_weight.t()),
        )
    return tuple(
        float(20 * torch.log10(want.norm() / (got.double() - want).norm())) for got, want in pairs
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--layers", nargs="*", default=["flux out", "flux up", "flux single", "wan up"],
                        help="K,N or names: " + ", ".join(LAYERS))  # fmt: skip
    parser.add_argument("--rows", nargs="*", type=int, default=[512, 1024, 4096], help="M")
    parser.add_argument("--block", nargs="*", type=int, default=[], help="widths of blocks")
    parser.add_argument("--device", type=torch.device, default="cpu")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=1)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--what", action="store_true")
    parser.add_argument("--accuracy", action="store_true")
    options = parser.parse_args()
    version = importlib.metadata.version("comfy-kitchen")
    where = torch.cuda.get_device_name(options.device) if options.device.type == "cuda" else "CPU"
    print(f"comfy-kitchen {version}, torch {torch.__version__}, {where}, {options.threads} threads")
    backend.register()
    torch.set_num_threads(options.threads)
    with torch.inference_mode():
        if options.accuracy:
            return accuracy()
        print("how many times as long the others take:")
        switchback.keep_freed_memory()
        for name in options.layers if not options.block else ():
            for m in options.rows:
                for rotated in (True, False):
                    k, n = LAYERS.get(name) or map(int, name.split(","))
                    layer(options, k, n, m, rotated)
        for width in options.block:
            for m in options.rows:
                block(options, width, m)


if __name__ == "__main__":
    main()
