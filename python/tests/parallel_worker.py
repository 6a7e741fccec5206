# SPDX-License-Identifier: Apache-2.0
"""Run by torchrun from test_sharded.py: compares tensor parallel layers with the whole layers."""

import os

import torch
import torch.distributed as dist
from switchback import nn as sb


def compare(mode, dtype):
    torch.manual_seed(0)
    up, down = torch.nn.Linear(20, 37), torch.nn.Linear(37, 11)
    for part in (up, down):
        part.to(dtype)
    column = sb.SwitchBackColumnParallel(up, mode=mode)
    row = sb.SwitchBackRowParallel(down, mode=mode)
    whole = [sb.replace_linear(part, mode=mode) for part in (up, down)]
    world, rank = dist.get_world_size(), dist.get_rank()
    x, g = torch.randn(3, 5, 20).to(dtype), torch.randn(3, 5, 11).to(dtype)
    results = []
    for first, second in (whole, (column, row)):
        given = x.clone().requires_grad_()
        inside = first(given)
        inside.retain_grad()
        y = second(torch.tanh(inside))
        y.backward(g)
        results.append((y.detach(), given.grad, inside.detach(), inside.grad))
    one, many = results
    cut = [t.tensor_split(world, -1)[rank] for t in one[2:]]
    for name, a, b in zip(("y", "dx", "h", "dh"), (*one[:2], *cut), many):
        assert torch.equal(a, b), (mode, dtype, name, (a - b).abs().max())
    for dim, part, shard in ((0, whole[0], column), (1, whole[1], row)):
        dw = part.weight.grad.tensor_split(world, dim)[rank]
        # These are the same terms of the same sums; a product of another shape may add them in another order.
        bound = 1e-5 if dtype is torch.float32 else 2e-2
        assert (dw - shard.weight.grad).abs().max() <= bound * dw.abs().max(), (mode, dtype, "dw")
        db = part.bias.grad.tensor_split(world)[rank] if dim == 0 else part.bias.grad
        assert (db - shard.bias.grad).abs().max() <= bound * db.abs().max(), (mode, dtype, "db")


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for mode in ("rowwise", "global"):
        for dtype in (torch.float32, torch.bfloat16):
            compare(mode, dtype)
    for words, call in (
        ("at least one each", lambda: sb.SwitchBackColumnParallel(torch.nn.Linear(4, 1))),
        ("'auto'", lambda: sb.SwitchBackRowParallel(torch.nn.Linear(4, 4), mode="auto")),
    ):
        try:
            call()
        except ValueError as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)
    dist.barrier()


if __name__ == "__main__":
    main()
    os._exit(0)  # without destroy_process_group: see fsdp_worker.py
