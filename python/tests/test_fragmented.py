# SPDX-License-Identifier: Apache-2.0
"""FragmentedLinear, compared with its definition in torch; its gradients, changed weights, and refused
arguments."""

import copy
import pickle
import unittest

from support import TensorCase, require_torch, results_of

torch = require_torch()

import switchback  # noqa: E402
from switchback import nn as sb  # noqa: E402

B, K, N, F, R = 9, 48, 20, 6, 3


def definition(x, w, s, c, d, hard=False):
    fragments = x.view(*x.shape[:-1], F, K // F)
    p = torch.softmax((fragments * s).sum(-1), -1)
    if hard:
        p = torch.nn.functional.one_hot(p.argmax(-1), F).to(x.dtype)
    p = p.repeat_interleave(K // F, dim=-1)
    return (p * x) @ w.T + ((1 - p) * x) @ c.T @ d.T


class Case(TensorCase):
    def setUp(self):
        super().setUp()
        self.x, self.g = torch.randn(B, K), torch.randn(B, N)

    def near(self, got, want, share):
        """Asserts that the error is at most this share of the largest value."""
        self.assertEqual(tuple(got.shape), tuple(want.shape))
        error = (got.double() - want.double()).abs().max()
        self.assertLessEqual(error.item(), share * want.abs().max().item())


class Values(Case):
    def test_definition(self):
        # Mode standard has sums of 48 products of float32. In int8, codes are off by 1/254 of the largest
        # element, and the errors of the products in a sum add up in quadrature, to about 1 % of the largest
        # sum.
        for mode, share in (("standard", 1e-5), ("rowwise", 0.03), ("global", 0.05)):
            with self.subTest(mode=mode):
                layer = sb.FragmentedLinear(K, N, F, R, mode=mode)
                got = results_of(layer, self.x, self.g)
                x64 = self.x.double().requires_grad_()
                weights = [p.detach().double().requires_grad_() for p in layer.parameters()]
                want = definition(x64, *weights)
                want.backward(self.g.double())
                self.near(got[0], want, share)
                self.near(got[1], x64.grad, share)
                for gradient, weight in zip(got[2:], weights):
                    self.near(gradient, weight.grad, 2 * share)
                layer.eval()
                with torch.no_grad():
                    self.near(layer(self.x), definition(x64, *weights, hard=True), share)

    def test_shapes_and_types(self):
        layer = sb.FragmentedLinear(K, N, F)
        self.assertEqual(layer.rank, 1)
        self.assertEqual(tuple(layer(self.x.view(3, 3, K)).shape), (3, 3, N))
        self.assertEqual(tuple(layer(self.x[:0]).shape), (0, N))
        layer(self.x[:0]).sum().backward()
        self.assertEqual(float(layer.weight.grad.abs().max()), 0.0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = layer(self.x)
        self.assertIs(y.dtype, torch.bfloat16)
        y.sum().backward()
        self.assertIs(layer.weight.grad.dtype, torch.float32)
        half = sb.FragmentedLinear(K, N, F, dtype=torch.bfloat16)
        half(self.x.bfloat16()).sum().backward()
        self.assertIs(half.selector.grad.dtype, torch.bfloat16)


class Weights(Case):
    def test_changes_are_noticed(self):
        layer = sb.FragmentedLinear(K, N, F, R).eval()
        with torch.no_grad():
            for parameter in (layer.weight, layer.selector, layer.down, layer.up):
                before = layer(self.x)
                parameter.data.mul_(-1.5)  # autograd does not notice this change
                self.assertFalse(torch.equal(layer(self.x), before))
                for train in (False, True, False):  # training forwards need other codes
                    self.equal(layer.train(train)(self.x), copy.deepcopy(layer)(self.x))

    def test_prepared_weights_count_as_unchanged(self):
        layer = sb.FragmentedLinear(K, N, F, R)
        with torch.no_grad():
            y = layer.prepare_for_eval()(self.x)
            self.assertFalse(layer.training)
            layer.weight.data.zero_()
            self.equal(layer(self.x), y)
            layer.weight_updated()
            self.assertFalse(torch.equal(layer(self.x), y))
            y = layer.prepare_for_eval()(self.x)
            layer.train().eval()  # ends it too
            layer.weight.data.fill_(1.0)
            self.assertFalse(torch.equal(layer(self.x), y))

    def test_copies_and_checkpoints(self):
        layer = sb.FragmentedLinear(K, N, F, R).eval()
        with torch.no_grad():
            y = layer(self.x)
            for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
                self.equal(other(self.x), y)
            other = sb.FragmentedLinear(K, N, F, R).eval()
            other.load_state_dict(layer.state_dict())
            self.equal(other(self.x), y)


class Refusals(Case):
    def test_options(self):
        with self.assertRaisesRegex(ValueError, "in_features = 10; it must be a multiple of fragments = 3"):
            sb.FragmentedLinear(10, 4, 3)
        with self.assertRaisesRegex(ValueError, "rank = 0; it must be at least 1"):
            sb.FragmentedLinear(10, 4, 2, 0)
        with self.assertRaisesRegex(ValueError, "mode = 'no'"):
            sb.FragmentedLinear(10, 4, 2, mode="no")

    def test_calls(self):
        layer = sb.FragmentedLinear(K, N, F, R)
        with self.assertRaisesRegex(switchback.InvalidArgument, "in_features = 48"):
            layer(self.x[:, 1:])
        with self.assertRaisesRegex(TypeError, "float16"):
            layer(self.x.half())
        with self.assertRaisesRegex(switchback.InvalidState, "eval mode"):
            layer.eval()(self.x).sum().backward()


if __name__ == "__main__":
    unittest.main()
