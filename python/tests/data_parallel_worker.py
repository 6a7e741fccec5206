# SPDX-License-Identifier: Apache-2.0
"""Run by torchrun from test_distributed.py: DistributedDataParallel of int8 layers and of experts.

Argument: a file that process 0 writes if every step was right. Each process computes the gradients of
its part of the batch a second time, without DDP. Their mean over the processes must be DDP's gradients,
to the bit: a sum of two halves has a single rounding, in either order.
"""

import copy
import sys

import torch
import torch.distributed as dist
from support import torch_at_least
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from switchback import nn as sb

M, K, N, STEPS = 300, 40, 24, 3


class Layers(torch.nn.Module):
    def __init__(self, recomputes, options):
        super().__init__()
        options = {"dw": "int8_block", "dw_block_rows": 128, **options}
        self.first, self.second = (sb.SwitchBackLinear(size, N, **options) for size in (K, N))
        self.recomputes = recomputes

    def forward(self, x):
        x = torch.tanh(self.first(x))
        if self.recomputes:
            return checkpoint(self.second, x, use_reentrant=False)
        return self.second(x)


class Mixture(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = sb.SwitchBackExperts(3, K, 24)
        self.head = sb.SwitchBackLinearVectorwise(K, N)

    def forward(self, x):
        used = 2 + dist.get_rank()  # the first process routes no token to the third expert
        index = (torch.arange(M)[:, None] + torch.arange(2)) % used
        return self.head(self.experts(x, index, torch.full((M, 2), 0.5)))


def gradients(model, x, target, casts):
    model.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=casts):
        y = model(x)
    loss = torch.nn.functional.mse_loss(y.float(), target)
    loss.backward()
    return float(loss.detach()), [p.grad.clone() for p in model.parameters()]


def train(make, casts):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    plain = make()
    model = DistributedDataParallel(copy.deepcopy(plain))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    torch.manual_seed(1 + rank)
    x, target = torch.randn(M, K), torch.randn(M, N)
    losses = []
    for step in range(STEPS):
        plain.load_state_dict(model.module.state_dict())
        _, wanted = gradients(plain, x, target, casts)
        loss, found = gradients(model, x, target, casts)
        for ours, theirs in zip(wanted, found):
            ours /= world
            dist.all_reduce(ours)
            assert torch.equal(ours, theirs), (plain, casts, step)
        optimizer.step()
        losses.append(loss)
    assert losses[-1] < losses[0], losses
    for parameter in model.parameters():
        others = [torch.empty_like(parameter) for _ in range(world)]
        dist.all_gather(others, parameter.detach())
        assert all(torch.equal(other, others[0]) for other in others)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    # Autocast on CPUs is as it is since torch 2.
    for casts in (False, True) if torch_at_least(2, 0) else (False,):
        train(Mixture, casts)
        for recomputes in (False, True):
            for options in (
                {"mode": "rowwise"},
                {"mode": "rowwise_shared"},
                {"mode": "global", "rounding": "stochastic", "seed": 3},
            ):
                train(lambda r=recomputes, o=options: Layers(r, o), casts)
    dist.barrier()
    if dist.get_rank() == 0:
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            file.write("all gradients are those without DDP")


main()
