# SPDX-License-Identifier: Apache-2.0
"""FSDP2 with weights that are gathered as int8 codes, and tensor parallel layers: both have the bits of one
process."""

import json
import os
import tempfile
import unittest

from support import require_torch, run_python, torch_at_least
from test_distributed import HAS_GLOO, torchrun

torch = require_torch()

from switchback import nn as sb  # noqa: E402
from switchback._tensors import HAS_OPERATORS  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


@unittest.skipUnless(HAS_GLOO and torch_at_least(2, 6), "sharding on the CPU needs torch 2.6")
class Sharded(unittest.TestCase):
    def test_processes(self):
        for processes in (2, 3):
            with self.subTest(processes=processes):
                done = torchrun(os.path.join(HERE, "sharded_worker.py"), processes=processes)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                line = next(line for line in done.stdout.splitlines() if line.startswith("{"))
                self.check(json.loads(line))

    def check(self, found):
        self.assertIn("lean=False", found["refused"])
        one, rows = "SwitchBackLinearGlobal", "SwitchBackLinearVectorwise"
        # Codes take a quarter of the bytes of float32, and biases stay float32. With scales per row and
        # column, there are 4 bytes more for each row, and a few for each column of these small weights.
        self.assertLess(found[f"{one} False"], 0.31 * found[f"{one} None"])
        self.assertLess(found[f"{rows} True"], 0.5 * found[f"{rows} None"])
        self.assertLess(found[f"{rows} False"], 0.9 * found[f"{rows} None"])


@unittest.skipUnless(HAS_GLOO, "this torch has no gloo")
class TensorParallel(unittest.TestCase):
    def test_processes(self):
        for processes in (2, 3):
            with self.subTest(processes=processes):
                done = torchrun(os.path.join(HERE, "parallel_worker.py"), processes=processes)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


# A program that uses torch's own tensor parallelism, in a process group of one process.
PARALLELIZED = """
import sys, torch
from switchback import nn as sb
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
store = "file://" + sys.argv[1]
torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
for prepared in (False, True):
    layer = sb.SwitchBackLinearVectorwise(8, 16)
    if prepared:
        layer.prepare_for_eval()
    model = parallelize_module(torch.nn.Sequential(layer), mesh, {"0": ColwiseParallel()})
    try:
        model(torch.randn(4, 8))
    except TypeError as error:
        print(error, flush=True)
"""


@unittest.skipUnless(HAS_GLOO and torch_at_least(2, 6), "DTensors on the CPU need torch 2.6")
class Distributed(unittest.TestCase):
    def test_dtensors_are_refused_with_what_to_do(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run_python("-c", PARALLELIZED, os.path.join(folder, "store"))
        said = [line for line in done.stdout.splitlines() if "DTensor" in line]
        self.assertEqual(len(said), 2, done.stdout + done.stderr)
        for line in said:
            self.assertIn("switchback.nn.SwitchBackColumnParallel", line)


@unittest.skipUnless(HAS_OPERATORS, "shard_int8 needs torch 2.4")
class Alone(unittest.TestCase):
    """Without FSDP, a weight of shard_int8 is a float parameter that trains and is saved."""

    def test_it_trains_and_is_saved(self):
        torch.manual_seed(0)
        x = torch.randn(5, 12)
        for make in (sb.SwitchBackLinearVectorwise, sb.SwitchBackLinearGlobalMemEfficient):
            plain = torch.nn.Sequential(make(12, 7))
            other = torch.nn.Sequential(make(12, 7))
            other.load_state_dict(plain.state_dict())
            sb.shard_int8(other)
            for model in (plain, other):
                optimizer = torch.optim.AdamW(model.parameters(), 0.1)
                for _ in range(3):
                    model(x).square().sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
            self.assertTrue(torch.equal(plain(x), other(x)))
            with self.assertRaisesRegex(ValueError, "once"):
                sb.shard_int8(other)

    def test_what_stays(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), sb.StandardLinear(3, 3))
        before = [type(p.data) for p in model.parameters()]
        sb.shard_int8(model)
        self.assertEqual([type(p.data) for p in model.parameters()], before)


if __name__ == "__main__":
    unittest.main()
