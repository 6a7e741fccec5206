# SPDX-License-Identifier: Apache-2.0
"""Run by torchrun from test_distributed.py: FullyShardedDataParallel must follow training on one process.

Every process also trains an unsharded copy of the model on the global batch, and compares losses and
outputs with it, step by step. (sharded_worker.py tests fully_shard.)
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from switchback import nn as sb

STEPS, BATCH = 6, 16
# The allowed difference of float32 losses near 1 after few steps. Gradients are summed in another order,
# which changes weights by roundings and, rarely, an int8 code by one: by 1 / 127 of one of 32 terms of one
# output.
TOLERANCE = 1e-3


def model(make):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        make(12, 32), torch.nn.Tanh(), make(32, 32), torch.nn.Tanh(), make(32, 5)
    )


def shard(module):
    return FullyShardedDataParallel(
        module,
        auto_wrap_policy=ModuleWrapPolicy({sb.SwitchBackLinear}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def step(module, optimizer, x, want):
    module.train()
    optimizer.zero_grad()
    loss = (module(x) - want).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach().clone()


def compare(make):
    rank, world = dist.get_rank(), dist.get_world_size()
    twin, sharded = model(make), shard(model(make))
    optimizers = [torch.optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in (twin, sharded)]
    generator = torch.Generator().manual_seed(1)
    mine = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
    losses = []
    for _ in range(STEPS):
        x = torch.randn(BATCH, 12, generator=generator)
        want = torch.sin(x[:, :5])
        losses.append(step(twin, optimizers[0], x, want))
        loss = step(sharded, optimizers[1], x[mine], want[mine])
        dist.all_reduce(loss)
        assert abs(losses[-1] - loss / world) < TOLERANCE, (make, losses, loss)
        with torch.no_grad():  # after a step, twice: codes of the earlier weight must not be used
            for _ in range(2):
                difference = (twin.eval()(x) - sharded.eval()(x)).abs().max()
                # One code may differ by one step, 1 / 127, in one of 32 terms whose absmax is about 1.
                assert difference < 2 / 127, (make, difference)
    assert losses[-1] < losses[0], losses


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for make in (
        sb.SwitchBackLinear,
        sb.SwitchBackLinearVectorwise,
        sb.SwitchBackLinearGlobalMemEfficient,
    ):
        compare(make)
    dist.barrier()


if __name__ == "__main__":
    main()
    # destroy_process_group is not called: gloo's threads sometimes abort a process that ends, also in a
    # program with torch's own layers.
    os._exit(0)
