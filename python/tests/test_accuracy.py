# SPDX-License-Identifier: Apache-2.0
"""The results of the layers have the bits of the separate operations, for any dtype and size."""

import math
import unittest

from support import require_torch

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


def run(layer, x, g):
    """Runs a layer; returns its output, and the gradients of x, weight and bias."""
    x = x.detach().clone().requires_grad_()
    y = layer(x)
    y.backward(g)
    return y, x.grad, layer.weight.grad, layer.bias.grad


def like(linear, make, dtype=torch.float32, **options):
    """Creates a layer with the parameters of an nn.Linear."""
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

    def test_forward_is_what_the_kernels_say(self):
        # The layer's result must equal the specified result exactly, not approximately.
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

    def test_non_finite_gradients_stay_visible(self):
        for make, options in (*INT8_LAYERS, (sb.StandardLinear, {})):
            for bad in (math.nan, math.inf, -math.inf):
                layer = make(83, 7, **options)
                x = torch.randn(4, 83, requires_grad=True)
                g = torch.zeros(4, 7)
                g[1, 3] = bad
                layer(x).backward(g)
                # torch's GradScaler looks for NaN and Inf in every gradient in this way.
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


if __name__ == "__main__":
    unittest.main()
