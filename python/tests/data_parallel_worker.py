# SPDX-License-Identifier: Apache-2.0
"""Run by torchrun from test_distributed.py: DistributedDataParallel with int8 weight gradients.

Each process computes the gradients of its part of the batch a second time, without DDP. Their mean
over the processes must be DDP's gradients, to the bit: a sum of two halves has a single rounding, in
either order.
"""

import copy

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from switchback import nn as sb

M, K, N, STEPS = 300, 40, 24, 3


def layer(inputs, outputs, options):
    return sb.SwitchBackLinear(inputs, outputs, dw="int8_block", dw_block_rows=128, **options)


class Model(torch.nn.Module):
    def __init__(self, recomputes, options):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = layer(K, N, options), layer(N, N, options)
        self.recomputes = recomputes

    def forward(self, x):
        x = torch.tanh(self.first(x))
        if self.recomputes:
            return checkpoint(self.second, x, use_reentrant=False)
        return self.second(x)


def gradients(model, x, target, casts):
    model.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=casts):
        y = model(x)
    loss = torch.nn.functional.mse_loss(y.float(), target)
    loss.backward()
    return float(loss.detach()), [p.grad.clone() for p in model.parameters()]


def train(casts, recomputes, options):
    rank, world = dist.get_rank(), dist.get_world_size()
    plain = Model(recomputes, options)
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
            assert torch.equal(ours, theirs), (casts, recomputes, options, step)
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
    for casts in (False, True):
        for recomputes in (False, True):
            for options in (
                {"mode": "rowwise"},
                {"mode": "rowwise_shared"},
                {"mode": "global", "rounding": "stochastic", "seed": 3},
            ):
                train(casts, recomputes, options)
    dist.barrier()
    if dist.get_rank() == 0:
        print("all gradients are those without DDP", flush=True)


main()
