#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data parallel training of SwitchBack layers on the digits, any number of processes.

    torchrun --standalone --nproc_per_node 2 ddp.py

Uses gloo on CPUs, and nccl if every process has its own GPU. The global batch does not depend on the
number of processes. Started without torchrun it is one process, the reference for the other runs.
"""

import argparse
import contextlib
import json
import os

import torch
import torch.distributed as dist
from digits import DATA, LAYERS, accuracy, load, mlp

from switchback.nn import reuse_weight_codes


def start():
    """Returns the rank of this process, the number of processes, and the device of this process."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    on_gpu = torch.cuda.is_available() and torch.cuda.device_count() >= world
    device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    if world > 1:
        dist.init_process_group("nccl" if on_gpu else "gloo")
    return int(os.environ.get("RANK", "0")), world, device


def mean_over_processes(value, world):
    """The mean of a tensor over all processes."""
    if world > 1:
        dist.all_reduce(value)
        value /= world
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default=DATA)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=64, help="of all processes together")
    parser.add_argument(
        "--accumulate", type=int, default=1, help="microbatches per step and process"
    )
    parser.add_argument(
        "--layer", choices=[n for n in LAYERS if LAYERS[n]], default="SwitchBackLinearVectorwise"
    )
    parser.add_argument("--out", help="a file for losses and accuracy, as JSON")
    options = parser.parse_args()

    rank, world, device = start()
    images, labels, test_images, test_labels = (t.to(device) for t in load(options.data))
    torch.manual_seed(0)
    bare = mlp(LAYERS[options.layer]).to(device)
    model = torch.nn.parallel.DistributedDataParallel(bare) if world > 1 else bare
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

    pieces = world * options.accumulate
    if options.batch % pieces:
        parser.error(
            f"--batch {options.batch} must be a multiple of processes times --accumulate, {pieces}"
        )
    order = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(options.steps):
        chosen = torch.randint(len(images), (options.batch,), generator=order)
        parts = chosen.to(device).chunk(pieces)[rank::world]
        optimizer.zero_grad()
        total = torch.zeros((), device=device)
        with reuse_weight_codes():  # the weight does not change within a step
            for i, part in enumerate(parts):
                last = i == len(parts) - 1
                with contextlib.nullcontext() if last or world == 1 else model.no_sync():
                    loss = torch.nn.functional.cross_entropy(model(images[part]), labels[part])
                    (loss / len(parts)).backward()
                total += loss.detach() / len(parts)
        optimizer.step()
        losses.append(float(mean_over_processes(total, world)))

    right = accuracy(bare, test_images, test_labels)
    if rank == 0:
        print(
            f"{world} process(es): loss {losses[0]:.4f} -> {losses[-1]:.4f}, accuracy {right:.2f} %"
        )
        if options.out:
            with open(options.out, "w", encoding="utf-8") as file:
                json.dump({"losses": losses, "accuracy": right}, file)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
