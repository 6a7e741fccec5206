# SPDX-License-Identifier: Apache-2.0
"""How far the layers are from nn.Linear, and what they do with awkward values."""

import math
import unittest

from support import relative_error, require_torch

torch = require_torch()

from switchback import nn as sb  # noqa: E402
from switchback import ops  # noqa: E402

INT8_LAYERS = (
    (sb.SwitchBackLinearGlobal, {}),
    (sb.SwitchBackLinearGlobalMemEfficient, {}),
    (sb.SwitchBackLinearVectorwise, {}),
    (sb.SwitchBackLinearVectorwise, {"mem_efficient": True}),
)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def through_int8(t):
    """A matrix as int8 codes with one scale per row hold it."""
    absmax = t.abs().amax(1, keepdim=True)
    return torch.round(127 * (t / absmax)) * (absmax / 127)


class AllInt8:
    """The baseline: LLM.int8's vector-wise quantization for all three products, and no more of it.

    Each product takes both operands through int8, one scale per row of the left and per column of
    the right one: X and W^T, G and W, G^T and X. Without the part of LLM.int8 that computes
    columns with outliers in floating point, which these data do not have. SwitchBack differs in
    keeping the weight gradient in floating point, and, in mode global, one scale for W.
    """

    def __init__(self, linear):
        self.weight, self.bias = linear.weight.detach(), linear.bias.detach()

    def run(self, x, g):
        """The output, and the gradients of x, weight and bias."""
        q = through_int8
        y = q(x) @ q(self.weight).t() + self.bias
        return y, q(g) @ q(self.weight.t()).t(), q(g.t()) @ q(x.t()).t(), g.sum(0)


def run(layer, x, g):
    """The output, and the gradients of x, weight and bias."""
    x = x.detach().clone().requires_grad_()
    y = layer(x)
    y.backward(g)
    return y, x.grad, layer.weight.grad, layer.bias.grad


def like(linear, make, dtype=torch.float32, **options):
    """A layer with the parameters of an nn.Linear."""
    layer = make(
        linear.in_features, linear.out_features, linear.bias is not None, dtype=dtype, **options
    )
    layer.load_state_dict(linear.state_dict())
    return layer


class AgainstLinear(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(83, 332)
        self.x = torch.randn(13, 83)
        self.g = torch.randn(13, 332)
        self.exact = run(self.linear, self.x, self.g)

    def test_errors_are_within_twice_those_of_all_int8(self):
        baseline = AllInt8(self.linear).run(self.x, self.g)
        for make, options in INT8_LAYERS:
            got = run(like(self.linear, make, **options), self.x, self.g)
            for name, ours, theirs, exact in zip(("y", "dX", "dW"), got, baseline, self.exact):
                with self.subTest(layer=make.__name__, **options, what=name):
                    self.assertLessEqual(
                        relative_error(ours, exact), 2 * relative_error(theirs, exact)
                    )
            # The bias gradient is a float32 sum over M = 13 rows on every side. Two orders of
            # adding 13 numbers differ by at most 2 * 12 roundings of partial sums, each of which
            # is at most sum |g|.
            bound = 24 * 2.0**-24 * self.g.abs().sum(0)
            self.assertTrue(((got[3] - self.exact[3]).abs() <= bound).all())
            self.assertTrue(((baseline[3] - self.exact[3]).abs() <= bound).all())

    def test_float_dw_and_standard(self):
        # dW of an X that is kept, and all of mode standard, are float32 products: sums of n
        # products are off by at most n * 2^-24 of the sum of magnitudes, on either side.
        def bound(a, b, n):
            return 2 * (n + 1) * 2.0**-24 * (a.abs() @ b.abs())

        w = self.linear.weight.detach()
        standard = run(like(self.linear, sb.StandardLinear), self.x, self.g)
        limits = (
            bound(self.x, w.t(), 83) + 2.0**-23 * self.exact[0].abs(),
            bound(self.g, w, 332),
            bound(self.g.t(), self.x, 13),
        )
        for got, exact, limit in zip(standard, self.exact, limits):
            self.assertTrue(((got - exact).abs() <= limit).all())
        for make in (sb.SwitchBackLinearGlobal, sb.SwitchBackLinearVectorwise):
            dw = run(like(self.linear, make), self.x, self.g)[2]
            self.assertTrue(((dw - self.exact[2]).abs() <= limits[2]).all())

    def test_forward_is_what_the_kernels_say(self):
        # The layer computes the specified thing, not something near it.
        weight, bias = self.linear.weight.detach(), self.linear.bias.detach()
        q, rows = ops.quantize_rowwise(self.x)
        for make, quantize in (
            (sb.SwitchBackLinearVectorwise, ops.quantize_rowwise),
            (sb.SwitchBackLinearGlobal, ops.quantize_global),
        ):
            codes, scales = quantize(weight)
            want = ops.gemm_dequantize(q, codes, rows, scales, bias)
            self.assertTrue(torch.equal(like(self.linear, make)(self.x), want))

    def test_mem_efficient_is_the_gradient_of_the_dequantized_input(self):
        for make in (sb.SwitchBackLinearGlobal, sb.SwitchBackLinearVectorwise):
            full = run(like(self.linear, make), self.x, self.g)
            lean = run(like(self.linear, make, mem_efficient=True), self.x, self.g)
            self.assertTrue(torch.equal(full[0], lean[0]))
            self.assertTrue(torch.equal(full[1], lean[1]))
            widened = ops.dequantize_rowwise(*ops.quantize_rowwise(self.x))
            self.assertTrue(torch.equal(lean[2], run(like(self.linear, make), widened, self.g)[2]))
            self.assertFalse(torch.equal(lean[2], full[2]))


class Values(unittest.TestCase):
    def test_dtypes_and_odd_sizes(self):
        torch.manual_seed(1)
        for make, options in (
            *INT8_LAYERS,
            (sb.StandardLinear, {}),
            (sb.SwitchBackLinear, {"mode": "auto"}),
        ):
            for dtype in DTYPES:
                for m, k, n in ((13, 83, 5), (1, 1, 1), (3, 1, 7), (2, 130, 1)):
                    layer = make(k, n, dtype=dtype, **options)
                    x = torch.randn(m, k).to(dtype).requires_grad_()
                    y = layer(x)
                    y.backward(torch.ones_like(y))
                    with self.subTest(layer=make.__name__, dtype=dtype, shape=(m, k, n)):
                        for tensor in (y, x.grad, layer.weight.grad, layer.bias.grad):
                            self.assertEqual(tensor.dtype, dtype)
                            self.assertTrue(torch.isfinite(tensor).all())
                        self.assertEqual(y.shape, (m, n))
                        self.assertEqual(x.grad.shape, (m, k))

    def test_rows_of_zeros(self):
        for make, options in INT8_LAYERS:
            layer = make(83, 7, **options)
            x = torch.randn(4, 83)
            x[2] = 0
            x.requires_grad_()
            g = torch.randn(4, 7)
            g[1] = 0
            y = layer(x)
            y.backward(g)
            self.assertTrue(torch.equal(y[2], layer.bias))
            self.assertTrue((x.grad[1] == 0).all())
            self.assertTrue(torch.isfinite(layer.weight.grad).all())
            with torch.no_grad():
                layer.weight.zero_()
            self.assertTrue(torch.equal(layer(x)[0], layer.bias))

    def test_tiny_scales_in_half(self):
        # An absmax of 1e-5 has no reciprocal in f16; scales are float32.
        for make, options in INT8_LAYERS:
            layer = make(64, 8, bias=False, dtype=torch.float16, **options)
            x = (torch.rand(3, 64) * 1e-5).half()
            self.assertLess(float(x.abs().max()), 1.5e-5)
            with torch.no_grad():
                layer.weight.fill_(0.5)
            y = layer(x.requires_grad_())
            want = x.detach().double().sum(1, keepdim=True) * 0.5
            # Codes are off by at most half a step of absmax / 127 in each of 64 elements, the
            # output by half a spacing of f16's subnormals.
            bound = 64 * 0.5 * 0.5 * 1e-5 / 127 + 2.0**-25
            self.assertTrue(((y.double() - want).abs() <= bound).all())
            y.backward(torch.full_like(y, 1e-5))
            self.assertTrue(torch.isfinite(x.grad).all())

    def test_non_finite_gradients_stay_visible(self):
        for make, options in (*INT8_LAYERS, (sb.StandardLinear, {})):
            for bad in (math.nan, math.inf, -math.inf):
                layer = make(83, 7, **options)
                x = torch.randn(4, 83, requires_grad=True)
                g = torch.zeros(4, 7)
                g[1, 3] = bad
                layer(x).backward(g)
                # What GradScaler asks of every gradient.
                for gradient in (x.grad, layer.weight.grad, layer.bias.grad):
                    self.assertFalse(torch.isfinite(gradient).all())
                self.assertFalse(torch.isfinite(x.grad[1]).any())
                self.assertTrue((x.grad[0] == 0).all())

    def test_a_grad_scaler_skips_the_step(self):
        try:
            scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        except (AttributeError, TypeError):
            self.skipTest("this torch has no GradScaler for the CPU")
        for bad in (False, True):
            layer = sb.SwitchBackLinear(83, 7)
            before = layer.weight.detach().clone()
            optimizer = torch.optim.SGD(layer.parameters(), 0.1)
            y = layer(torch.randn(4, 83))
            scaler.scale(y.sum() * (math.inf if bad else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()
            self.assertEqual(torch.equal(layer.weight, before), bad)

    def test_non_finite_inputs_stay_visible(self):
        for make, options in INT8_LAYERS:
            layer = make(16, 3, **options)
            for bad in (math.nan, math.inf):
                x = torch.randn(2, 16)
                x[0, 5] = bad
                y = layer(x)
                self.assertTrue(torch.isnan(y[0]).all())
                self.assertTrue(torch.isfinite(y[1]).all())
            with torch.no_grad():
                layer.weight[1, 1] = math.nan
            self.assertTrue(torch.isnan(layer(torch.ones(1, 16))[0, 1]))


if __name__ == "__main__":
    unittest.main()
