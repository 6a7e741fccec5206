# SPDX-License-Identifier: Apache-2.0
"""The module switchback.nn.GELU, and replace_gelu."""

import copy
import unittest

from support import relative_error, require_torch

torch = require_torch()

import switchback  # noqa: E402
from switchback import nn as sb  # noqa: E402
from switchback._tensors import HAS_OPERATORS, TORCH_VERSION  # noqa: E402
from torch import nn  # noqa: E402

FORMS = (("gelu_tanh", "tanh"), ("gelu_erf", "none"))


def result_and_gradient(gelu, x, g):
    x = x.clone().requires_grad_()
    y = gelu(x)
    y.backward(g)
    return y.detach(), x.grad


class NewGELUActivation(nn.Module):
    """A copy of transformers' class, under whose name replace_gelu finds it."""

    __module__ = "transformers.activations"

    def forward(self, x):
        inside = 0.7978845608028654 * (x + 0.044715 * x.pow(3.0))
        return 0.5 * x * (1.0 + torch.tanh(inside))


class Block(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(8, 32), act, nn.Linear(32, 8)

    def forward(self, x):
        return self.down(self.act(self.up(x)))


class Gelu(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def test_bits_of_the_kernels(self):
        for activation, _ in FORMS:
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                x, g = torch.randn(2, 3, 40).to(dtype), torch.randn(2, 3, 40).to(dtype)
                for rows in (x, x.transpose(0, 1), x[..., ::2], x[0, 0]):
                    of_y = g.reshape(-1)[: rows.numel()].view(rows.shape)
                    y, dx = result_and_gradient(sb.GELU(activation), rows, of_y)
                    flat = [t.reshape(-1, rows.shape[-1]) for t in (rows, of_y)]
                    want = switchback.activation_forward(flat[0], activation)
                    self.assertTrue(torch.equal(y, want.view(rows.shape)))
                    want = switchback.activation_backward(flat[1], flat[0], activation)
                    self.assertTrue(torch.equal(dx, want.view(rows.shape)))
                    self.assertIs(y.dtype, dtype)

    def test_against_torch(self):
        x, g = torch.randn(16, 64), torch.randn(16, 64)
        for activation, form in FORMS:
            got = result_and_gradient(sb.GELU(activation), x, g)
            for a, b in zip(got, result_and_gradient(nn.GELU(approximate=form), x, g)):
                self.assertLess(relative_error(a, b), 1e-6)

    def test_scalars_and_empty_tensors(self):
        gelu = sb.GELU()
        one, want = gelu(torch.tensor(1.5)), nn.functional.gelu(torch.tensor(1.5), approximate="tanh")
        self.assertEqual(one.shape, ())
        self.assertLess(abs(float(one - want)), 1e-6)
        x = torch.randn(0, 4, requires_grad=True)
        gelu(x).sum().backward()
        self.assertEqual(x.grad.shape, (0, 4))

    def test_x_alone_is_kept(self):
        x, kept = torch.randn(8, 64, requires_grad=True), {}

        def pack(tensor):
            kept[tensor.data_ptr()] = tensor.shape
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            sb.GELU()(x)
        self.assertEqual(list(kept), [x.data_ptr()])

    def test_bad_arguments(self):
        with self.assertRaisesRegex(ValueError, "activation = 'relu'; it must be"):
            sb.GELU("relu")
        with self.assertRaisesRegex(TypeError, "GELU: x has dtype torch.float64"):
            sb.GELU()(torch.randn(2, 2, dtype=torch.float64))

    @unittest.skipUnless(TORCH_VERSION >= (2, 0), "autocast on CPUs as it is since torch 2")
    def test_autocast_leaves_the_dtype(self):
        with torch.autocast("cpu", torch.bfloat16):
            for dtype in (torch.float32, torch.bfloat16):
                self.assertIs(sb.GELU()(torch.randn(3, 4, dtype=dtype)).dtype, dtype)

    @unittest.skipUnless(HAS_OPERATORS, "operators need torch 2.4")
    def test_compiled(self):
        x, g = torch.randn(5, 24), torch.randn(5, 24)
        for activation, _ in FORMS:
            gelu = sb.GELU(activation)
            compiled = torch.compile(gelu, fullgraph=True, backend="aot_eager")
            for a, b in zip(result_and_gradient(gelu, x, g), result_and_gradient(compiled, x, g)):
                self.assertTrue(torch.equal(a, b))


class ReplaceGelu(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def test_which(self):
        erf, tanh, other = nn.GELU(), nn.GELU(approximate="tanh"), NewGELUActivation()
        model = nn.Sequential(Block(erf), Block(tanh), Block(other), Block(tanh), nn.ReLU())
        replaced, x = [], torch.randn(4, 8)
        want = model(x)
        self.assertIs(sb.replace_gelu(model, replaced=replaced), model)
        # The fourth block shares the second block's module.
        self.assertEqual(replaced, ["0.act", "1.act", "2.act"])
        self.assertEqual([block.act.activation[5:] for block in model[:4]], ["erf"] + 3 * ["tanh"])
        self.assertIs(model[3].act, model[1].act)
        self.assertLess(relative_error(model(x), want), 1e-5)
        self.assertEqual(sb.replace_gelu(model, replaced=replaced), model)
        self.assertEqual(len(replaced), 3)
        model = nn.Sequential(Block(erf), Block(tanh))
        sb.replace_gelu(model, forms="gelu_tanh")
        self.assertIs(model[0].act, erf)
        self.assertIs(type(model[1].act), sb.GELU)
        with self.assertRaisesRegex(ValueError, "replace_gelu: forms contains 'erf'; each must be"):
            sb.replace_gelu(model, forms=("gelu_tanh", "erf"))

    def test_rules_hooks_and_the_model_itself(self):
        model = nn.Sequential(Block(nn.GELU(approximate="tanh")), Block(nn.GELU(approximate="tanh")))
        seen = []
        model[1].act.register_forward_hook(lambda *_: seen.append(1))
        sb.replace_gelu(model.eval(), exclude="0.*")
        self.assertIs(type(model[0].act), nn.GELU)
        self.assertIs(type(model[1].act), sb.GELU)
        self.assertFalse(model[1].act.training)
        model(torch.randn(2, 8))
        self.assertEqual(seen, [1])
        self.assertIs(type(sb.replace_gelu(nn.GELU(approximate="tanh"))), sb.GELU)
        held = nn.Sequential(nn.GELU(approximate="tanh"))
        held[0]._register_state_dict_hook(lambda *_: None)
        with self.assertRaisesRegex(ValueError, "replace_gelu: '0' has hooks in"):
            sb.replace_gelu(held)

    def test_training_with_replaced_layers(self):
        plain = nn.Sequential(Block(NewGELUActivation()), Block(NewGELUActivation()))
        model = sb.replace_gelu(sb.replace_linear(copy.deepcopy(plain), mode="rowwise"))
        x, g = torch.randn(16, 8), torch.randn(16, 8)
        for a, b in zip(result_and_gradient(model, x, g), result_and_gradient(plain, x, g)):
            self.assertLess(relative_error(a, b), 0.05)  # int8 codes


if __name__ == "__main__":
    unittest.main()
