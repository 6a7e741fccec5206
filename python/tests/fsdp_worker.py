# SPDX-License-Identifier: Apache-2.0
"""Run by torchrun from test_distributed.py: sharded training must follow training on one process.

Argument: fully_shard or FullyShardedDataParallel. Every process also trains an unsharded copy of the
model on the global batch, and compares losses and outputs with it, step by step.
"""

import os
import sys

import torch
import torch.distributed as dist

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


def shard(module, how):
    if how == "fully_shard":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for part in module:
            if isinstance(part, sb.SwitchBackLinear):
                fully_shard(part, mesh=mesh)
        fully_shard(module, mesh=mesh)
        return module
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    return FullyShardedDataParallel(
        module,
        auto_wrap_policy=ModuleWrapPolicy({sb.SwitchBackLinear}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for make in (
        sb.SwitchBackLinear,
        sb.SwitchBackLinearVectorwise,
        sb.SwitchBackLinearGlobalMemEfficient,
    ):
        twin, sharded = model(make), shard(model(make), sys.argv[1])
        optimizers = [torch.optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in (twin, sharded)]
        generator = torch.Generator().manual_seed(1)
        first = last = None
        for step in range(STEPS):
            x = torch.randn(BATCH, 12, generator=generator)
            want = torch.sin(x[:, :5])
            piece = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
            losses = []
            for m, rows, optimizer in (
                (twin, slice(None), optimizers[0]),
                (sharded, piece, optimizers[1]),
            ):
                m.train()
                optimizer.zero_grad()
                loss = (m(x[rows]) - want[rows]).square().mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach().clone())
            dist.all_reduce(losses[1])
            losses[1] /= world
            assert abs(losses[0] - losses[1]) < TOLERANCE, (make, step, losses)
            first, last = first or losses[0], losses[0]
            for m in (twin, sharded):
                m.eval()
            with torch.no_grad():  # after a step, twice: codes of the earlier weight must not be used
                for _ in range(2):
                    difference = (twin(x) - sharded(x)).abs().max()
                    # One code may differ by one step, 1 / 127, in one of 32 terms whose absmax is about 1.
                    assert difference < 2 / 127, (make, step, difference)
        assert last < first, (first, last)
    dist.barrier()


if __name__ == "__main__":
    main()
    # destroy_process_group is not called: gloo's threads sometimes abort a process that ends, also in a
    # program with torch's own layers.
    os._exit(0)
