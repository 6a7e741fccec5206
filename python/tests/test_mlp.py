# SPDX-License-Identifier: Apache-2.0
"""SwitchBackMLP: it has the bits of separate operations; and which tensors it keeps for backward."""

import copy
import unittest

from support import relative_error, require_torch

torch = require_torch()

from look_alikes import Conv1D  # noqa: E402
from switchback import nn as sb  # noqa: E402
from switchback._tensors import HAS_OPERATORS  # noqa: E402
from switchback.nn._mlp import activated  # noqa: E402
from torch import nn  # noqa: E402


def results_of(call, mlp, x, g):
    mlp.zero_grad()
    x = x.clone().requires_grad_()
    y = call(x)
    y.backward(g)
    return [y.detach(), x.grad, *(p.grad.clone() for p in mlp.parameters())]


class Mlp(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def same(self, first, second):
        for place, (a, b) in enumerate(zip(first, second)):
            self.assertTrue(torch.equal(a, b), f"result {place} differs")

    def test_bits_of_separate_operations(self):
        for mode in ("rowwise", "global"):
            for activation in ("gelu_tanh", "gelu_erf"):
                for dtype in (torch.float32, torch.bfloat16):
                    mlp = sb.SwitchBackMLP(
                        24, 96, 20, activation=activation, mode=mode, dtype=dtype
                    )
                    x, g = torch.randn(3, 5, 24, dtype=dtype), torch.randn(3, 5, 20, dtype=dtype)

                    def apart(x, mlp=mlp, activation=activation):
                        return mlp.down(activated(mlp.up(x), activation))

                    for _ in range(2):
                        fused, separate = (results_of(f, mlp, x, g) for f in (mlp, apart))
                        self.same(fused, separate)
                        with torch.no_grad():
                            mlp.down.weight.mul_(1.5)

    def test_int8_dw(self):
        for mode in ("rowwise", "rowwise_shared", "global"):
            mlp = sb.SwitchBackMLP(24, 96, mode=mode, dw="int8_block")
            self.assertEqual((mlp.up.dw, mlp.down.dw), ("int8_block", "int8_block"))
            x, g = torch.randn(300, 24), torch.randn(300, 24)
            apart = results_of(lambda x: mlp.down(activated(mlp.up(x), "gelu_tanh")), mlp, x, g)
            self.same(results_of(mlp, mlp, x, g), apart)

    def test_conv1d(self):
        for dw in ("floating", "int8_block"):
            up, down = Conv1D(96, 24), Conv1D(32, 96)
            parameters = up.weight, up.bias, down.weight, down.bias
            linear = sb.SwitchBackMLP(24, 96, 32, dw=dw)
            with torch.no_grad():
                for mine, theirs in zip(linear.parameters(), parameters):
                    mine.copy_(theirs.t() if theirs.dim() == 2 else theirs)
            mlp = sb.SwitchBackMLP.of(up, down, dw=dw)
            for mine, theirs in zip(mlp.parameters(), parameters):
                self.assertIs(mine, theirs)
            x, g = torch.randn(300, 24), torch.randn(300, 32)
            got, want = (results_of(m, m, x, g) for m in (mlp, linear))
            self.same(got[:2], want[:2])
            for a, b in zip(got[2:], want[2:]):
                # dW in floating point is the same sum, added in another order.
                self.assertLess(relative_error(a, b.t() if b.dim() == 2 else b), 1e-6)
            self.same([copy.deepcopy(mlp)(x), sb.prepare_for_eval(mlp)(x)], [want[0]] * 2)

    def test_against_torch(self):
        for activation, name in (("gelu_tanh", "tanh"), ("gelu_erf", "none")):
            up, down = nn.Linear(64, 256), nn.Linear(256, 64)
            act = nn.GELU(approximate=name)
            mlp = sb.SwitchBackMLP.of(up, down, activation)
            self.assertIs(mlp.up.weight, up.weight)
            x, g = torch.randn(32, 64), torch.randn(32, 64)
            got = results_of(mlp, mlp, x, g)
            plain = nn.Sequential(up, act, down)
            want = results_of(plain, mlp, x, g)
            for a, b in zip(got, want):
                self.assertLess(relative_error(a, b), 0.03)

    def test_less_is_kept(self):
        mlp, x = sb.SwitchBackMLP(16, 64), torch.randn(8, 16, requires_grad=True)
        kept = {}

        def pack(tensor):
            if tensor.shape == (8, 64):
                kept[tensor.data_ptr()] = tensor.shape
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            mlp(x)
        self.assertEqual(len(kept), 1)

    def test_prepared_copied_and_loaded(self):
        mlp, x = sb.SwitchBackMLP(24, 96).eval(), torch.randn(5, 24)
        with torch.no_grad():
            want = mlp(x)
            for other in (copy.deepcopy(mlp), sb.prepare_for_eval(copy.deepcopy(mlp))):
                self.assertTrue(torch.equal(other(x), want))
            fresh = sb.SwitchBackMLP(24, 96)
            fresh(x)
            fresh.load_state_dict(mlp.state_dict())
            self.assertTrue(torch.equal(fresh(x), want))
            fresh.down.weight.data.zero_()
            self.assertFalse(torch.equal(fresh(x), want))
        x.requires_grad_()
        self.assertEqual(sb.prepare_for_eval(mlp)(x).sum().backward(), None)
        self.assertEqual(x.grad.shape, x.shape)

    @unittest.skipUnless(HAS_OPERATORS, "operators need torch 2.4")
    def test_compiled(self):
        mlp, x, g = sb.SwitchBackMLP(24, 96), torch.randn(5, 24), torch.randn(5, 24)
        compiled = torch.compile(mlp, fullgraph=True, backend="aot_eager")
        self.same(results_of(mlp, mlp, x, g), results_of(compiled, mlp, x, g))

    def test_bad_arguments(self):
        for words, call in (
            ("'relu'", lambda: sb.SwitchBackMLP(4, 8, activation="relu")),
            ("Linear and Conv1D", lambda: sb.SwitchBackMLP.of(nn.Linear(4, 8), Conv1D(4, 8))),
            ("8 outputs.*9 inputs", lambda: sb.SwitchBackMLP.of(Conv1D(8, 4), Conv1D(4, 9))),
            ("8 outputs", lambda: sb.SwitchBackMLP.of(nn.Linear(4, 8), nn.Linear(9, 4))),
        ):
            with self.assertRaisesRegex(ValueError, words):
                call()


if __name__ == "__main__":
    unittest.main()
