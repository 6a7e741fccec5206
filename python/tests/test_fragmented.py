# SPDX-License-Identifier: Apache-2.0
"""FragmentedLinear, compared with its definition in torch; its gradients, changed weights, and refused
arguments."""

import copy
import pickle
import unittest

from support import require_torch

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


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
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
                x = self.x.clone().requires_grad_()
                y = layer(x)
                y.backward(self.g)
                x64 = self.x.double().requires_grad_()
                weights = [p.detach().double().requires_grad_() for p in layer.parameters()]
                want = definition(x64, *weights)
                want.backward(self.g.double())
                self.near(y, want, share)
                self.near(x.grad, x64.grad, share)
                for parameter, weight in zip(layer.parameters(), weights):
                    self.near(parameter.grad, weight.grad, 2 * share)
                layer.eval()
                with torch.no_grad():
                    self.near(layer(self.x), definition(x64, *weights, hard=True), share)

    def test_gradcheck_shapes_and_types(self):
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

    def test_rows_do_not_depend_on_the_batch(self):
        for train in (True, False):
            layer = sb.FragmentedLinear(K, N, F, R).train(train)
            with torch.no_grad():
                together = layer(self.x)
                for row in range(B):
                    self.assertTrue(torch.equal(layer(self.x[row : row + 1])[0], together[row]))

    def test_only_wanted_gradients(self):
        layer = sb.FragmentedLinear(K, N, F, R)
        layer(self.x).backward(self.g)
        want = {name: p.grad.clone() for name, p in layer.named_parameters()}
        for name, parameter in layer.named_parameters():
            for other in layer.parameters():
                other.grad = None
                other.requires_grad_(other is parameter)
            layer(self.x).backward(self.g)
            self.assertTrue(torch.equal(parameter.grad, want[name]), name)
            self.assertTrue(all(o.grad is None for o in layer.parameters() if o is not parameter))


class Weights(Case):
    def test_changes_are_noticed(self):
        layer = sb.FragmentedLinear(K, N, F, R).eval()
        with torch.no_grad():
            for parameter in (layer.weight, layer.selector, layer.down, layer.up):
                before = layer(self.x)
                parameter.data.mul_(-1.5)  # autograd does not notice this change
                fresh = copy.deepcopy(layer)
                self.assertFalse(torch.equal(layer(self.x), before))
                self.assertTrue(torch.equal(layer(self.x), fresh(self.x)))

    def test_prepared_weights_count_as_unchanged(self):
        layer = sb.FragmentedLinear(K, N, F, R)
        with torch.no_grad():
            y = layer.prepare_for_eval()(self.x)
            self.assertFalse(layer.training)
            layer.weight.data.zero_()
            self.assertTrue(torch.equal(layer(self.x), y))
            layer.weight_updated()
            self.assertFalse(torch.equal(layer(self.x), y))
            y = layer.prepare_for_eval()(self.x)
            layer.train().eval()  # ends it too
            layer.weight.data.fill_(1.0)
            self.assertFalse(torch.equal(layer(self.x), y))

    def test_training_between_evals(self):
        layer = sb.FragmentedLinear(K, N, F, R)
        optimizer = torch.optim.SGD(layer.parameters(), 0.05)
        losses = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = (layer(self.x) - self.g).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            layer.eval()
            with torch.no_grad():
                self.assertTrue(torch.equal(layer(self.x), copy.deepcopy(layer)(self.x)))
            layer.train()
        self.assertLess(losses[-1], 0.9 * losses[0])

    def test_copies_and_checkpoints(self):
        layer = sb.FragmentedLinear(K, N, F, R).eval()
        with torch.no_grad():
            y = layer(self.x)
            for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
                self.assertTrue(torch.equal(other(self.x), y))
            other = sb.FragmentedLinear(K, N, F, R).eval()
            other.load_state_dict(layer.state_dict())
            self.assertTrue(torch.equal(other(self.x), y))


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
