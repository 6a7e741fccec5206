# SPDX-License-Identifier: Apache-2.0
"""A trainer and a serving engine whose layers use the same int8 products must compute the same bits."""

import unittest

from support import require_torch

torch = require_torch()

from switchback import nn as sb  # noqa: E402
from switchback.interop.serving import SwitchBackLinearMethod  # noqa: E402
from torch import nn  # noqa: E402

WIDTH, HIDDEN, TOKENS = 48, 80, 31


class Trainer(nn.Module):
    """A small language model: a gated perceptron and a mean over earlier tokens, between embedding and head.
    """

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens):
        h = mixed(self.embed(tokens))
        return self.head(h + self.down(nn.functional.silu(self.gate(h)) * self.up(h)))


def mixed(h):
    """A decayed sum over the earlier tokens, element by element, so that a sequence does not depend on its
    batch."""
    rows = [h[:, 0]]
    for t in range(1, h.shape[1]):
        rows.append(rows[-1] * 0.5 + h[:, t])
    return torch.stack(rows, 1)


class Served(nn.Module):
    """A linear module like those of serving engines: a weight of several matrices, and a method object."""

    def __init__(self, method, inputs, outputs, dtype, bias=False):
        super().__init__()
        self.method = method
        method.create_weights(
            self, inputs, outputs, inputs, sum(outputs), dtype, weight_loader=self.load
        )
        self.bias = nn.Parameter(torch.zeros(sum(outputs), dtype=dtype)) if bias else None

    def load(self, parameter, weight, row):
        parameter.data[row : row + weight.shape[0]].copy_(weight)

    def forward(self, x):
        return self.method.apply(self, x, self.bias)


class Sampler(nn.Module):
    """The trainer's model as a serving engine computes it: gate and up are one product."""

    def __init__(self, trainer):
        super().__init__()
        method, dtype = SwitchBackLinearMethod(), trainer.embed.weight.dtype
        self.embed = nn.Embedding(TOKENS, WIDTH, dtype=dtype)
        self.gate_up = Served(method, WIDTH, [HIDDEN, HIDDEN], dtype)
        self.down = Served(method, HIDDEN, [WIDTH], dtype, bias=True)
        self.head = Served(method, WIDTH, [TOKENS], dtype, bias=True)
        for served, sources in self.pairs(trainer):
            row = 0
            for source in sources:
                served.weight.weight_loader(served.weight, source.weight, row)
                row += source.out_features
            method.process_weights_after_loading(served)
            # A second time, as engines that reload weights call it.
            method.process_weights_after_loading(served)
        self.take_rest(trainer)

    def pairs(self, trainer):
        yield self.gate_up, (trainer.gate, trainer.up)
        yield self.down, (trainer.down,)
        yield self.head, (trainer.head,)

    def take_rest(self, trainer):
        with torch.no_grad():
            self.embed.weight.copy_(trainer.embed.weight)
            self.down.bias.copy_(trainer.down.bias)
            self.head.bias.copy_(trainer.head.bias)

    def sync(self, trainer):
        for served, sources in self.pairs(trainer):
            weight = torch.cat([source.weight.detach() for source in sources])
            served.method.update_weights(served, weight)
        self.take_rest(trainer)

    @torch.inference_mode()
    def forward(self, tokens):
        h = mixed(self.embed(tokens))
        gate, up = self.gate_up(h).chunk(2, -1)
        return self.head(h + self.down(nn.functional.silu(gate) * up))


class Serving(unittest.TestCase):
    def test_log_probabilities_of_a_trainer_and_of_a_sampler(self):
        for mode in ("rowwise", "rowwise_shared"):
            for dtype in (torch.float32, torch.bfloat16):
                torch.manual_seed(0)
                trainer = sb.replace_linear(Trainer().to(dtype), mode=mode)
                optimizer = torch.optim.SGD(trainer.parameters(), 0.1)
                sampler = Sampler(trainer)
                places = [served.W_int8.data_ptr() for served, _ in sampler.pairs(trainer)]
                for _ in range(3):
                    tokens = torch.randint(0, TOKENS, (6, 9))
                    logits = trainer(tokens)
                    want = logits.detach().float().log_softmax(-1)
                    for rows in ([2], [5, 2], [1, 0, 3, 2, 4, 5, 1]):
                        # Each length separately, as a decoder sees a growing sequence.
                        for length in (1, 4, 9):
                            got = sampler(tokens[rows][:, :length]).float().log_softmax(-1)
                            ratio = (want[rows][:, :length] - got).exp()
                            self.assertTrue(bool((ratio == 1).all()), (mode, dtype, rows, length))
                    nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten()).backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    sampler.sync(trainer)
                now = [served.W_int8.data_ptr() for served, _ in sampler.pairs(trainer)]
                self.assertEqual(now, places)
                self.assertNotIn("gate_up.weight", sampler.state_dict())

    def test_what_is_refused(self):
        method, module = SwitchBackLinearMethod(), nn.Module()
        with self.assertRaisesRegex(Exception, "input_size_per_partition = 8.*16"):
            method.create_weights(module, 8, [4], 16, 4, torch.float32)
        with self.assertRaisesRegex(TypeError, "params_dtype = torch.float64"):
            method.create_weights(module, 16, [4], 16, 4, torch.float64)
        method.create_weights(module, 16, [4], 16, 4, torch.float32)
        with self.assertRaisesRegex(Exception, "process_weights_after_loading"):
            method.apply(module, torch.zeros(1, 16))
        method.process_weights_after_loading(module)
        with self.assertRaisesRegex(ValueError, r"\(4, 15\).*\(4, 16\)"):
            method.update_weights(module, torch.zeros(4, 15))


if __name__ == "__main__":
    unittest.main()
