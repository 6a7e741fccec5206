# SPDX-License-Identifier: Apache-2.0
"""The module switchback.nn.GELU, and replace_gelu."""

import unittest

from support import TensorCase, relative_error, require_torch, results_of

torch = require_torch()

import switchback  # noqa: E402
from switchback import nn as sb  # noqa: E402
from switchback._tensors import HAS_OPERATORS, TORCH_VERSION  # noqa: E402
from torch import nn  # noqa: E402

FORMS = (("gelu_tanh", "tanh"), ("gelu_erf", "none"))


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


class Gelu(TensorCase):
    def test_bits_of_the_kernels(self):
        for activation, _ in FORMS:
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                x, g = torch.randn(2, 3, 40).to(dtype), torch.randn(2, 3, 40).to(dtype)
                for rows in (x, x.transpose(0, 1), x[..., ::2], x[0, 0]):
                    of_y = g.reshape(-1)[: rows.numel()].view(rows.shape)
                    y, dx = results_of(sb.GELU(activation), rows, of_y)
                    flat = [t.reshape(-1, rows.shape[-1]) for t in (rows, of_y)]
                    want = switchback.activation_forward(flat[0], activation)
                    self.equal(y, want.view(rows.shape))
                    want = switchback.activation_backward(flat[1], flat[0], activation)
                    self.equal(dx, want.view(rows.shape))

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
            self.equal(results_of(compiled, x, g), results_of(gelu, x, g))


class ReplaceGelu(TensorCase):
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


if __name__ == "__main__":
    unittest.main()
