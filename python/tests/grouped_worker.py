# SPDX-License-Identifier: Apache-2.0
"""Run by torchrun: trains a mixture of experts under DDP. Process 0 writes a file if every step was right."""

import copy
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from switchback import nn as sb


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = sb.SwitchBackExperts(3, 16, 24)
        self.head = sb.SwitchBackLinearVectorwise(16, 5)

    def forward(self, x, index, weights):
        return self.head(self.experts(x, index, weights))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Model()
    alone = copy.deepcopy(model)
    parallel = DistributedDataParallel(model)
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (model, alone)]
    for _ in range(3):
        x = torch.randn(8 * world, 16)
        index = torch.rand(8 * world, 3).argsort(1)[:, :2]
        index[:8] %= 2  # the first process routes no token to the third expert
        weights = torch.rand(8 * world, 2)
        mine = slice(8 * rank, 8 * rank + 8)
        for optimizer in optimizers:
            optimizer.zero_grad()
        parallel(x[mine], index[mine], weights[mine]).square().mean().backward()
        alone(x, index, weights).square().mean().backward()
        for a, b in zip(model.parameters(), alone.parameters()):
            # Gradients are sums over the tokens, added in another order, of numbers of about one. The codes
            # of a gradient also have another scale, 1/127 of the largest element.
            assert torch.allclose(a.grad, b.grad, atol=2e-2 * float(b.grad.abs().max()) + 1e-7)
        for optimizer in optimizers:
            optimizer.step()
    dist.barrier()
    if rank == 0:
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            file.write("ok")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
