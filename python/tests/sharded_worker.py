# SPDX-License-Identifier: Apache-2.0
"""Run by torchrun from test_sharded.py: weights that FSDP2 gathers as int8 codes.

Every process has the same batch, and an unsharded copy of the model. Outputs, input gradients and, after
each step, the weights must have the bits of that copy. Prints the bytes that each layer gathers.
"""

import contextlib
import copy
import json
import os
from unittest import mock

import torch
import torch.distributed as dist
from switchback import InvalidState
from switchback import nn as sb
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

SIZES = (12, 37, 20, 5)  # no number of rows is divisible by both two and three


def model(make):
    torch.manual_seed(0)
    layers = []
    for k, n in zip(SIZES, SIZES[1:]):
        layers += [make(k, n), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])


@contextlib.contextmanager
def bytes_given():
    """Lists the bytes that this process gives to all-gathers and all-reduces, which transfer no gradients."""
    counts, running = [], []

    def counting(name, function):
        def counted(*arguments, **options):
            given = arguments[0 if name == "all_reduce" else 1]
            if not running:  # some of these functions call each other
                counts.append(given.numel() * given.element_size())
            running.append(name)
            try:
                return function(*arguments, **options)
            finally:
                running.pop()

        return counted

    with contextlib.ExitStack() as stack:
        for name in ("all_gather_into_tensor", "all_gather_single", "all_reduce"):
            if hasattr(dist, name):
                function = counting(name, getattr(dist, name))
                stack.enter_context(mock.patch.object(dist, name, function))
        yield counts


def sharded(module, mesh, dtype, reshard):
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for part in module:
        if isinstance(part, sb.SwitchBackLinear):
            fully_shard(part, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
    fully_shard(module, mesh=mesh, mp_policy=policy)
    return module


def compare(make, mesh, lean, dtype, reshard):
    twin, other = model(make), model(make)
    if lean is not None:
        sb.shard_int8(other, lean=lean)
    other = sharded(other, mesh, dtype, reshard)
    optimizers = [torch.optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in (twin, other)]
    generator = torch.Generator().manual_seed(1)
    world, gathered = dist.get_world_size(), 0
    for step in range(3):
        x = torch.randn(7, SIZES[0], generator=generator)
        given, results = [], []
        for m, optimizer in zip((twin, other), optimizers):
            its = m if dtype is None or m is other else copy.deepcopy(m).to(dtype)
            its_x = (x if dtype is None or m is other else x.to(dtype)).clone().requires_grad_()
            optimizer.zero_grad()
            with bytes_given() as given_bytes:
                y = its(its_x)
                y.square().sum().backward()
            gathered = sum(given_bytes)
            given.append(its_x.grad.float())
            results.append(y.detach().float())
            if its is not m:
                for p, q in zip(m.parameters(), its.parameters()):
                    p.grad = q.grad.float()
            optimizer.step()
        case = (make.__name__, lean, dtype, reshard, step)
        assert torch.equal(results[0], results[1]), (case, "y", (results[0] - results[1]).abs().max())
        assert torch.equal(given[0], given[1].to(given[0].dtype)), (case, "dx")
        for p, q in zip(twin.parameters(), other.parameters()):
            whole = q.full_tensor()
            # FSDP averages equal gradients: exact for two processes, one rounding for three.
            scale = 1e-6 if world == 3 or dtype is not None else 0.0
            difference = float((p - whole).detach().abs().max())
            assert difference <= scale, (case, "weight", tuple(p.shape), difference)
            with torch.no_grad():
                local = q.to_local()
                begin = sum(len(c) for c in p.detach().chunk(world)[: dist.get_rank()])
                getattr(local, "_tensor", local).copy_(p.detach()[begin : begin + len(local)])
        with torch.no_grad():
            equal = torch.equal(twin.eval()(x), other.eval()(x))
            assert equal or dtype is not None, (case, "eval")
        twin.train()
        other.train()
        for part in other.modules():
            if hasattr(part, "reshard"):
                part.reshard()
    return gathered


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    found = {}
    for make in (
        sb.SwitchBackLinearGlobal,
        sb.SwitchBackLinearVectorwise,
        sb.SwitchBackLinearGlobalMemEfficient,
    ):
        for lean in (None, False, True):
            found[f"{make.__name__} {lean}"] = compare(make, mesh, lean, None, True)
        compare(make, mesh, False, None, False)
        compare(make, mesh, True, torch.bfloat16, True)
    layer = sb.shard_int8(torch.nn.Sequential(sb.SwitchBackLinearVectorwise(4, 6)), lean=True)
    sharded(layer, mesh, None, False)
    try:
        layer(torch.randn(2, 4, requires_grad=True)).sum().backward()
    except InvalidState as error:
        found["refused"] = str(error)
    dist.barrier()
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
    os._exit(0)  # without destroy_process_group: see fsdp_worker.py
