# SPDX-License-Identifier: Apache-2.0
"""A row's result does not depend on the other rows of its batch: for layers and for whole models."""

import copy
import unittest

from support import require_torch

torch = require_torch()

from torch import nn  # noqa: E402

import switchback  # noqa: E402
from switchback import nn as sb  # noqa: E402
from switchback._tensors import HAS_OPERATORS  # noqa: E402

KINDS = (sb.SwitchBackLinearVectorwise, sb.SwitchBackLinearGlobal)


class Decoder(nn.Module):
    """A causal language model. All its products are switchback's, or loops over products of one fixed shape.

    Attention is computed for one sequence and one head at a time, so that torch's products too have
    the same shape in every batch.
    """

    def __init__(self, kind, width=48, heads=4, vocabulary=29, layers=2):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(width),
                    "qkv": kind(width, 3 * width),
                    "out": kind(width, width),
                    "after": nn.LayerNorm(width),
                    "up": kind(width, 4 * width),
                    "down": kind(4 * width, width),
                }
            )
            for _ in range(layers)
        )
        self.head = kind(width, vocabulary, bias=False)

    def attention(self, qkv):
        length = qkv.shape[0]
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        heads = []
        for q, k, v in zip(*(part.chunk(self.heads, -1) for part in qkv.chunk(3, -1))):
            scores = (q @ k.t() / q.shape[-1] ** 0.5).masked_fill(~mask, float("-inf"))
            heads.append(scores.softmax(-1) @ v)
        return torch.cat(heads, -1)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            qkv = block["qkv"](block["norm"](x))
            x = x + block["out"](torch.stack([self.attention(one.contiguous()) for one in qkv]))
            x = x + block["down"](torch.relu(block["up"](block["after"](x))))
        return self.head(x)


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
        """Logits have the same bits in training, eval, prepared and compiled, alone and at any place in a
        batch."""
        for kind in KINDS:
            torch.manual_seed(0)
            trainer = Decoder(kind)
            tokens = torch.randint(0, 29, (5, 12))
            want = trainer(tokens).detach()
            samplers = {
                "train": trainer,
                "eval": copy.deepcopy(trainer).eval(),
                "prepared": sb.prepare_for_eval(copy.deepcopy(trainer)).eval(),
            }
            if HAS_OPERATORS:
                samplers["compiled"] = torch.compile(trainer, backend="eager", dynamic=True)
            for name, sampler in samplers.items():
                for rows in ([0], [3], [4, 1], [2, 2, 0, 4, 3, 1, 0]):
                    for graph in (torch.no_grad, torch.enable_grad):
                        if name == "compiled" and (graph is torch.enable_grad or len(rows) == 1):
                            continue  # each shape takes a while to compile
                        with graph():
                            logits = sampler(tokens[rows])
                        self.assertTrue(torch.equal(logits, want[rows]), (kind, name, rows))
            probabilities = want.log_softmax(-1)
            again = samplers["prepared"](tokens[:1]).detach().log_softmax(-1)
            self.assertEqual(float((probabilities[:1] - again).abs().max()), 0.0)  # KL = 0


if __name__ == "__main__":
    unittest.main()
