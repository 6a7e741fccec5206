# SPDX-License-Identifier: Apache-2.0
"""A row's result does not depend on the other rows of its batch: for layers and for whole models."""

import copy
import unittest

from support import require_torch

torch = require_torch()

import switchback  # noqa: E402
from switchback import nn as sb  # noqa: E402
from switchback._tensors import HAS_OPERATORS  # noqa: E402
from torch import nn  # noqa: E402

KINDS = (sb.SwitchBackLinearVectorwise, sb.SwitchBackLinearGlobal)


class Rows(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.addCleanup(switchback.set_num_threads, 0)

    def test_a_row_alone_and_in_any_batch(self):
        for kind in KINDS:
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                for k, n in ((64, 96), (255, 33), (1024, 256)):
                    layer = kind(k, n, dtype=dtype)
                    prepared = copy.deepcopy(layer).prepare_for_eval()
                    x = torch.randn(130, k).to(dtype)
                    x[7] *= 100  # a row with large elements must not change other rows
                    want = layer(x).detach()
                    for threads in (1, 2):
                        switchback.set_num_threads(threads)
                        for module in (layer, prepared):
                            for rows in ((0, 1), (3, 5), (100, 130), (1, 130), (0, 64)):
                                with torch.no_grad():
                                    got = module(x[slice(*rows)])
                                self.assertTrue(torch.equal(got, want[slice(*rows)]), (k, n, rows))

    def test_gradients_of_a_row(self):
        for kind in KINDS:
            layer = kind(64, 96)
            x, g = torch.randn(33, 64, requires_grad=True), torch.randn(33, 96)
            (want,) = torch.autograd.grad(layer(x), x, g)
            for rows in (slice(0, 1), slice(5, 20), slice(32, 33)):
                part = x[rows].detach().requires_grad_()
                (got,) = torch.autograd.grad(layer(part), part, g[rows])
                self.assertTrue(torch.equal(got, want[rows]))


class Models(unittest.TestCase):
    def test_logits_of_a_trainer_and_of_a_sampler(self):
        """Logits have the same bits in training, eval, prepared and compiled, alone and in any batch."""
        for kind in KINDS:
            torch.manual_seed(0)
            trainer = nn.Sequential(
                nn.Embedding(29, 48), kind(48, 192), nn.ReLU(), kind(192, 48), nn.LayerNorm(48), kind(48, 29)
            )
            tokens = torch.randint(0, 29, (5, 12))
            want = trainer(tokens).detach()
            samplers = {
                "train": trainer,
                "eval": copy.deepcopy(trainer).eval(),
                "prepared": sb.prepare_for_eval(copy.deepcopy(trainer)),
            }
            if HAS_OPERATORS:
                samplers["compiled"] = torch.compile(trainer, backend="eager", dynamic=True)
            for name, sampler in samplers.items():
                for rows in ([3], [4, 1], [2, 2, 0, 4, 3, 1, 0]):
                    with torch.no_grad():
                        logits = sampler(tokens[rows])
                    self.assertTrue(torch.equal(logits, want[rows]), (kind, name, rows))


if __name__ == "__main__":
    unittest.main()
