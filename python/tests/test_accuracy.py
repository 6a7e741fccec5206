# SPDX-License-Identifier: Apache-2.0
"""The results of the layers have the bits of the separate operations, for any dtype and size."""

import itertools
import math
import unittest

from support import TensorCase, relative_error, require_torch, results_of

torch = require_torch()

from switchback import nn as sb  # noqa: E402
from switchback import ops  # noqa: E402

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SHAPES = ((13, 83, 332), (1, 1, 1), (3, 1, 7), (2, 130, 1))


class AgainstOperations(TensorCase):
    def test_y_and_gradients(self):
        for dtype, (m, k, n), bias in itertools.product(DTYPES, SHAPES, (True, False)):
            x, g = torch.randn(m, k).to(dtype), torch.randn(m, n).to(dtype)
            (q, rows), (of_g, rows_of_g) = ops.quantize_rowwise(x), ops.quantize_rowwise(g)
            for make, quantize, quantize_transpose in (
                (
                    sb.SwitchBackLinearVectorwise,
                    ops.quantize_rowwise,
                    ops.quantize_columnwise_transpose,
                ),
                (sb.SwitchBackLinearGlobal, ops.quantize_global, ops.quantize_global_transpose),
            ):
                layer = make(k, n, bias, dtype=dtype)
                weight, its_bias = layer.weight.detach(), layer.bias.detach() if bias else None
                codes, scales = quantize(weight)
                across, scales_across = quantize_transpose(weight)
                with self.subTest(layer=make.__name__, dtype=dtype, shape=(m, k, n), bias=bias):
                    y, dx, dw, *db = results_of(layer, x, g)
                    self.equal(y, ops.gemm_dequantize(q, codes, rows, scales, its_bias, dtype))
                    want = ops.gemm_dequantize(of_g, across, rows_of_g, scales_across, None, dtype)
                    self.equal(dx, want)
                    # dW and db are sums of m terms in floating point, each with about m roundings.
                    bound = m * torch.finfo(dtype).eps
                    self.assertLessEqual(relative_error(dw, g.double().t() @ x.double()), bound)
                    self.assertEqual((dw.dtype, len(db)), (dtype, bias))
                    for of_bias in db:
                        self.assertIs(of_bias.dtype, dtype)
                        self.assertLessEqual(relative_error(of_bias, g.double().sum(0)), bound)

    def test_modes_in_floating_point(self):
        for dtype, (m, k, n) in itertools.product(DTYPES, SHAPES):
            x, g = torch.randn(m, k).to(dtype), torch.randn(m, n).to(dtype)
            # A sum of k products has about k roundings. Mode auto may choose int8.
            eps = torch.finfo(dtype).eps
            for mode, share_of_y, share_of_dx in (("standard", k * eps, n * eps), ("auto", 0.03, 0.03)):
                layer = sb.SwitchBackLinear(k, n, dtype=dtype, mode=mode)
                y, dx = results_of(layer, x, g)[:2]
                weight = layer.weight.double()
                with self.subTest(mode=mode, dtype=dtype, shape=(m, k, n)):
                    self.assertEqual((y.dtype, dx.dtype), (dtype, dtype))
                    exact = x.double() @ weight.t() + layer.bias.double()
                    self.assertLessEqual(relative_error(y, exact), share_of_y)
                    self.assertLessEqual(relative_error(dx, g.double() @ weight), share_of_dx)

    def test_mem_efficient_is_the_gradient_of_the_dequantized_input(self):
        x, g = torch.randn(13, 83), torch.randn(13, 332)
        for make in (sb.SwitchBackLinearGlobal, sb.SwitchBackLinearVectorwise):
            layer, lean = make(83, 332), make(83, 332, mem_efficient=True)
            lean.load_state_dict(layer.state_dict())
            full, got = results_of(layer, x, g), results_of(lean, x, g)
            self.equal(got[:2], full[:2])
            widened = ops.dequantize_rowwise(*ops.quantize_rowwise(x))
            self.equal(got[2], results_of(layer, widened, g)[2])
            self.assertFalse(torch.equal(got[2], full[2]))

    def test_non_finite_gradients_stay_visible(self):
        for make, options in (
            (sb.SwitchBackLinearGlobal, {}),
            (sb.SwitchBackLinearGlobalMemEfficient, {}),
            (sb.SwitchBackLinearVectorwise, {}),
            (sb.SwitchBackLinearVectorwise, {"mem_efficient": True}),
            (sb.StandardLinear, {}),
        ):
            for bad in (math.nan, math.inf, -math.inf):
                g = torch.zeros(4, 7)
                g[1, 3] = bad
                _, dx, *of_parameters = results_of(make(83, 7, **options), torch.randn(4, 83), g)
                # torch's GradScaler looks for NaN and Inf in every gradient in this way.
                for gradient in (dx, *of_parameters):
                    self.assertFalse(torch.isfinite(gradient).all())
                self.assertFalse(torch.isfinite(dx[1]).any())
                self.assertTrue((dx[0] == 0).all())


if __name__ == "__main__":
    unittest.main()
