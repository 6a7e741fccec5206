#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of a whole decoder with nn.Linear and with switchback layers, alternately.

    python3 decoder.py --device cuda --dtype bfloat16 --dw floating int8_block
    python3 decoder.py --width 128 --hidden 512 --heads 4 --layers 2 --context 64 --vocabulary 512

The decoder has RMSNorm, rotary positions, causal attention, SwiGLU, an output head (which stays nn.Linear)
and AdamW. All decoders ("rivals") begin with the same weights and see the same tokens. Each round runs some
steps of each rival. The order is reversed from round to round, so that a change of the machine's speed
affects all rivals.

For each rival it prints the median time of a step and half the distance between its quartiles, tokens per
second, the speedup over nn.Linear (the median over rounds, the least and the greatest), memory, and the
losses.

Memory is the peak on a CUDA device. On a CPU it is the bytes of parameters, gradients, optimizer and int8
codes, and those that a forward keeps for its backward.
"""

import argparse
import itertools
import math
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

import switchback
import switchback.nn as sbn

SIZES = {  # sizes by name: width, hidden, layers, heads
    "small": (768, 3072, 12, 12),
    "medium": (1024, 4096, 24, 16),
    "large": (1280, 5120, 36, 20),
    "xl": (1600, 6400, 48, 25),
    "2.7B": (2560, 10240, 32, 32),
}


class RMSNorm(nn.Module):
    """RMSNorm: x / sqrt(mean(x²) + 1e-5) · gain."""

    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.gain


def rotary_table(length, head_dim, theta=10000.0):
    """The cosines and sines for rotary positions, [length, head_dim / 2] each."""
    half = head_dim // 2
    rates = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return angles.cos().float(), angles.sin().float()


def rotate(x, cosines, sines):
    """Applies rotary positions: rotates elements i and i + D/2 of x[..., length, D]."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cosines - b * sines, a * sines + b * cosines), dim=-1)


def causal_attention(q, k, v):
    """Causal attention: softmax(q·kᵀ/sqrt(D)) · v, where a query sees the keys up to its position."""
    if hasattr(functional, "scaled_dot_product_attention"):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    length = q.shape[-2]
    hidden = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-1, -2)
    return scores.masked_fill(hidden, -math.inf).softmax(-1) @ v


class Block(nn.Module):
    """A block of the decoder: x1 = x + attention(norm(x)), then x1 + SwiGLU(norm(x1))."""

    def __init__(self, width, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = RMSNorm(width)
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, cosines, sines):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = causal_attention(rotate(q, cosines, sines), rotate(k, cosines, sines), v)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


class Decoder(nn.Module):
    """The same decoder as in studies/models/decoder.hpp."""

    def __init__(self, vocabulary, width, hidden, layers, heads, context):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Block(width, hidden, heads) for _ in range(layers))
        self.final_norm = RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        cosines, sines = rotary_table(context, width // heads)
        self.register_buffer("cosines", cosines)
        self.register_buffer("sines", sines)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                ends_branch = name.endswith(("out.weight", "down.weight"))
                deviation = 0.02 / math.sqrt(2 * layers) if ends_branch else 0.02
                nn.init.normal_(parameter, std=deviation)

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cosines[:length], self.sines[:length])
        return self.head(self.final_norm(x))


def make_optimizer(model, rate=1e-4):
    """Creates AdamW for the trainable parameters, in the fastest form that this torch has for the device."""
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    decays = [p for name, p in trained if p.dim() == 2 and "embedding" not in name]
    others = [p for name, p in trained if p.dim() != 2 or "embedding" in name]
    groups = [{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    options = {"lr": rate, "betas": (0.9, 0.95), "eps": 1e-8}
    try:
        return torch.optim.AdamW(groups, fused=True, **options)
    except (TypeError, RuntimeError):
        return torch.optim.AdamW(groups, **options)


class LoRA(nn.Module):
    """A frozen layer plus the product of two narrow layers that train (LoRA)."""

    def __init__(self, base, rank, dtype):
        super().__init__()
        self.base = base.requires_grad_(False)
        options = {
            "bias": False,
            "dtype": dtype,
            "device": next(base.buffers(), base.weight).device,
        }
        self.narrow = nn.Linear(base.in_features, rank, **options)
        self.wide = nn.Linear(rank, base.out_features, **options)
        nn.init.zeros_(self.wide.weight)

    def forward(self, x):
        return self.base(x) + self.wide(self.narrow(x))


def add_lora(model, rank, dtype):
    """Freezes the model and puts a LoRA adapter around each linear layer of its blocks."""
    model.requires_grad_(False)
    for block in model.layers:
        for name, child in list(block.named_children()):
            if isinstance(child, nn.Linear):
                setattr(block, name, LoRA(child, rank, dtype))


class Rival:
    """One of the compared decoders with its optimizer."""

    def __init__(self, name, arguments, layer_options):
        self.name, self.arguments = name, arguments
        self.device = torch.device(arguments.device)
        dtype = getattr(torch, arguments.dtype)
        before = self.allocated()
        torch.manual_seed(1)
        sizes = arguments.width, arguments.hidden, arguments.layers, arguments.heads
        model = Decoder(arguments.vocabulary, *sizes, arguments.context).to(self.device, dtype)
        if layer_options is not None:
            sbn.replace_linear(model, exclude="head", **layer_options)
        if arguments.lora:
            if layer_options is not None:
                sbn.prepare_for_eval(model)
            add_lora(model, arguments.lora, dtype)
        self.model = model
        self.optimizer = make_optimizer(model, arguments.rate)
        self.call = torch.compile(model) if arguments.compile else model
        self.steps_done = 0
        self.losses: list = []
        self.own, self.peak = self.allocated() - before, 0  # bytes on a CUDA device

    def allocated(self):
        """Bytes of the CUDA device's memory that are in use; 0 on a CPU."""
        return torch.cuda.memory_allocated(self.device) if self.device.type == "cuda" else 0

    def tokens(self):
        """Random tokens. Nine in ten follow from the token before them, so that there is something to learn.
        """
        a = self.arguments
        generator = torch.Generator().manual_seed(self.steps_done)
        made = torch.randint(a.vocabulary, (a.batch, a.context + 1), generator=generator)
        random = torch.rand(made.shape, generator=generator) < 0.1
        for i in range(1, a.context + 1):
            made[:, i] = torch.where(
                random[:, i], made[:, i], (5 * made[:, i - 1] + 17) % a.vocabulary
            )
        return made[:, :-1].to(self.device), made[:, 1:].to(self.device)

    def loss(self, tokens, targets):
        """Computes the cross entropy of one batch."""
        logits = self.call(tokens).flatten(0, 1)
        return functional.cross_entropy(logits.float(), targets.flatten())

    def step(self):
        """Runs one training step; returns its seconds."""
        tokens, targets = self.tokens()
        self.synchronize()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        others = self.allocated() - self.own
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(tokens, targets)
        loss.backward()
        self.optimizer.step()
        self.synchronize()
        seconds = time.perf_counter() - start
        self.steps_done += 1
        self.losses.append(float(loss.detach()))
        if self.device.type == "cuda":
            self.peak = max(self.peak, torch.cuda.max_memory_allocated(self.device) - others)
        self.own = self.allocated() - others
        return seconds

    def synchronize(self):
        """Waits until the device has finished its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def memory(self):
        """The bytes of memory, as the module's docstring defines them. On a CPU this runs one more forward.
        """
        if self.device.type == "cuda":
            return self.peak
        kept = {}

        def note(tensor):
            kept[tensor.data_ptr()] = max(kept.get(tensor.data_ptr(), 0), bytes_of(tensor))
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            loss = self.loss(*self.tokens())
        del loss
        held = [*self.model.parameters(), *self.model.buffers()]
        for parameter in held:
            kept.pop(parameter.data_ptr(), None)
        held += [p.grad for p in self.model.parameters() if p.grad is not None]
        for state in self.optimizer.state.values():
            held += [value for value in state.values() if torch.is_tensor(value)]
        layers = [m for m in self.model.modules() if isinstance(m, sbn.SwitchBackLinear)]
        codes = sum(layer._layers.cached_bytes() for layer in layers)
        return sum(map(bytes_of, held)) + codes + sum(kept.values())


def bytes_of(tensor):
    """The bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()


def quartiles(values):
    """Returns the median, and half the distance between the quartiles."""
    if len(values) < 2:
        return values[0], 0.0
    first, median, third = statistics.quantiles(values, n=4, method="inclusive")
    return median, (third - first) / 2


def rivals_of(arguments):
    """Creates the decoders to compare: with nn.Linear, and with each combination of the layers' options."""
    made = [Rival("nn.Linear", arguments, None)]
    for mode, dw, rotation in itertools.product(arguments.mode, arguments.dw, arguments.rotation):
        options = {"mode": mode, "rotation": rotation}
        name = mode
        if not arguments.lora:
            options["dw"] = dw
            name += f" {dw}"
        elif dw != arguments.dw[0]:
            continue  # a frozen weight has no gradient
        name += f" rotation {rotation}" if rotation else ""
        made.append(Rival(name, arguments, options))
    return made


def measure(rivals, arguments):
    """Runs the rounds; returns for each decoder the seconds of its steps, by round."""
    for rival in rivals:
        for _ in range(arguments.warmup):
            rival.step()
    times = {rival: [] for rival in rivals}
    for number in range(arguments.rounds):
        for rival in rivals if number % 2 == 0 else reversed(rivals):
            times[rival].append([rival.step() for _ in range(arguments.steps)])
    return times


def report(rivals, times, arguments):
    """Prints a line of results for each decoder."""
    base = [statistics.median(steps) for steps in times[rivals[0]]]
    print(f"{'':34} ms a step          tokens/s     times nn.Linear         memory      loss")
    for rival in rivals:
        median, spread = quartiles([1e3 * t for steps in times[rival] for t in steps])
        ratios = sorted(b / statistics.median(steps) for b, steps in zip(base, times[rival]))
        tokens = arguments.batch * arguments.context / median * 1e3
        last = statistics.mean(rival.losses[-arguments.steps :])
        print(
            f"{rival.name:34} {median:8.1f} +- {spread:6.1f} {tokens:10.0f}   "
            f"{statistics.median(ratios):5.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})   "
            f"{rival.memory() / 2**20:10.1f} MiB   {rival.losses[0]:.4f} to {last:.4f}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=SIZES, help="width, hidden, layers and heads at once")
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--hidden", type=int, default=8192)
    parser.add_argument("--layers", type=int, default=None, help="default: 12, or the size's own")
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--vocabulary", type=int, default=16384)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument(
        "--mode", nargs="+", default=["rowwise"], help="of the layers, each a rival"
    )
    parser.add_argument("--dw", nargs="+", default=["floating"], choices=("floating", "int8_block"))
    parser.add_argument("--rotation", nargs="+", type=int, default=[0])
    parser.add_argument(
        "--lora", type=int, default=0, metavar="RANK", help="adapters on a frozen base"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--compile", action="store_true", help="torch.compile of each model")
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=2, help="steps of each rival in a round")
    parser.add_argument("--warmup", type=int, default=3, help="steps that are not counted")
    parser.add_argument("--threads", type=int, default=0, help="0: torch's number")
    parser.add_argument("--keep-memory", action="store_true", help="switchback.keep_freed_memory()")
    arguments = parser.parse_args()
    if arguments.threads > 0:
        torch.set_num_threads(arguments.threads)
    if arguments.keep_memory:
        switchback.keep_freed_memory()
    if arguments.size:
        arguments.width, arguments.hidden, layers, arguments.heads = SIZES[arguments.size]
        arguments.layers = arguments.layers or layers
    arguments.layers = arguments.layers or 12
    where = f"{torch.get_num_threads()} thread(s)"
    if arguments.device.startswith("cuda"):
        where = torch.cuda.get_device_name(arguments.device)
    print(
        f"torch {torch.__version__}, {where}, {arguments.dtype}{', compiled' if arguments.compile else ''}: "
        f"{arguments.layers} layers, width {arguments.width}, hidden {arguments.hidden}, {arguments.batch} "
        f"sequences of {arguments.context}"
        + (f", LoRA of rank {arguments.lora}" if arguments.lora else "")
        + f"; {arguments.rounds} rounds of {arguments.steps} steps"
    )
    rivals = rivals_of(arguments)
    report(rivals, measure(rivals, arguments), arguments)


if __name__ == "__main__":
    main()
