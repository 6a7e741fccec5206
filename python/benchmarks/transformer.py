#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The decoder of `switchback-bench transformer` in PyTorch; both are timed alternately.

Both have the same shapes in f32: RMSNorm, rotary positions, causal attention, SwiGLU, an output head, and
AdamW. Rounds alternate between `switchback-bench transformer --mode standard` (in a separate process) and
PyTorch (in this one), so that a change of the machine's speed affects both. It prints the medians of
the steps' times, and the median of the rounds' ratios: the speedup of switchback over PyTorch.
"""

import argparse
import json
import statistics
import subprocess
import time

import torch
from decoder import SIZES, Decoder, make_optimizer
from torch.nn import functional

PARTS = ("forward", "backward", "optimizer", "step")


class TorchSide:
    """Runs the steps of the PyTorch decoder, in this process."""

    def __init__(self, arguments, sizes):
        torch.manual_seed(1)
        self.model = Decoder(arguments.vocabulary, *sizes, arguments.context)
        self.optimizer = make_optimizer(self.model)
        shape = (arguments.batch, arguments.context)
        self.tokens = torch.randint(arguments.vocabulary, shape)
        self.targets = torch.randint(arguments.vocabulary, shape)

    def run_pass(self, which):
        """Runs one step; returns the seconds of each of its parts (forward, backward, optimizer) by name."""
        marks = [time.perf_counter()]
        if which == "forward":
            with torch.no_grad():
                self.model(self.tokens)
            marks.append(time.perf_counter())
        else:
            self.optimizer.zero_grad(set_to_none=False)
            marks = [time.perf_counter()]
            logits = self.model(self.tokens)
            marks.append(time.perf_counter())
            functional.cross_entropy(logits.flatten(0, 1), self.targets.flatten()).backward()
            marks.append(time.perf_counter())
            if which == "step":
                self.optimizer.step()
                marks.append(time.perf_counter())
        times = [after - before for before, after in zip(marks, marks[1:])]
        return dict(zip(PARTS, times), step=marks[-1] - marks[0])

    def times(self, which, steps):
        """The times of each part of a step by name, one for each step, after a step that is not counted."""
        self.run_pass(which)
        rows = [self.run_pass(which) for _ in range(steps)]
        return {part: [row[part] for row in rows] for part in rows[0]}


class SwitchbackSide:
    """Runs the steps of switchback's decoder, in processes of switchback-bench."""

    def __init__(self, arguments, sizes):
        width, hidden, layers, heads = sizes
        self.command = [arguments.program, "transformer", "--quiet", "--out", "-", "--device", "cpu"]
        self.command += ["--mode", "standard", "--warmup", "1", "--tune", "0"]
        self.command += ["--d-model", width, "--d-ff", hidden, "--layers", layers, "--heads", heads]
        self.command += ["--vocabulary", arguments.vocabulary, "--batch", arguments.batch]
        self.command += ["--context", arguments.context, "--threads", torch.get_num_threads()]
        self.command = [str(word) for word in self.command]

    def times(self, which, steps):
        """The median time of each part of a step by name."""
        command = [*self.command, "--pass", which, "--steps", str(steps)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        row = next(row for row in rows if row["phase"] == "timed")
        named = {part: row[part] for part in PARTS[:3]}
        named["step"] = row["synced_ms"]
        return {part: [of["median"] / 1e3] for part, of in named.items() if of is not None}


def compare(arguments, sizes):
    """Compares both decoders, and prints a line for each part of each pass."""
    torch_side = TorchSide(arguments, sizes)
    switchback_side = SwitchbackSide(arguments, sizes)
    for which in arguments.passes:
        rounds = []
        for number in range(arguments.rounds):
            sides = [torch_side, switchback_side]
            if number % 2 == 1:
                sides.reverse()
            times = {side: side.times(which, arguments.steps) for side in sides}
            rounds.append([times[torch_side], times[switchback_side]])
        for part in rounds[0][1]:
            if which == "forward" and part == "step":
                continue
            medians = [[statistics.median(side[part]) for side in sides] for sides in rounds]
            ratios = sorted(torch_s / own_s for torch_s, own_s in medians)
            torch_ms, own_ms = (1e3 * statistics.median(side) for side in zip(*medians))
            print(
                f"{which:9} {part:9}  torch {torch_ms:9.1f} ms  switchback {own_ms:9.1f} ms  "
                f"{statistics.median(ratios):5.2f}x ({ratios[0]:.2f} to {ratios[-1]:.2f})",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", help="switchback-bench")
    parser.add_argument("--size", default="small", choices=SIZES)
    parser.add_argument("--layers", type=int, default=0, help="instead of the size's own")
    parser.add_argument("--vocabulary", type=int, default=10000)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument(
        "--passes", nargs="+", default=["forward", "step"], choices=("forward", "backward", "step")
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="timed steps of a round")
    parser.add_argument("--threads", type=int, default=0, help="of both sides; 0: torch's number")
    arguments = parser.parse_args()
    if arguments.threads > 0:
        torch.set_num_threads(arguments.threads)
    width, hidden, layers, heads = SIZES[arguments.size]
    sizes = (width, hidden, arguments.layers or layers, heads)
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} thread(s), f32, {arguments.size} "
        f"({sizes[2]} layers), batch {arguments.batch}, context {arguments.context}; "
        f"medians of {arguments.rounds} rounds of {arguments.steps} steps"
    )
    compare(arguments, sizes)


if __name__ == "__main__":
    main()
