# SPDX-License-Identifier: Apache-2.0
"""The kernels on NumPy arrays and torch tensors, compared bit for bit with NumPy code."""

import math
import unittest
from unittest import mock

import numpy as np
from support import absmax_of, codes_of, quantize_rows, require_torch

import switchback
from switchback import ops

try:
    import torch
except ImportError:
    torch = None

SHAPES = ((1, 1), (13, 83), (5, 64), (3, 129), (64, 1), (0, 7), (7, 0), (0, 0))


def awkward(rows, cols, dtype=np.float32, seed=0):
    """Normal values, except for the first rows, whose values are hard to round or scale."""
    x = np.random.default_rng(seed).standard_normal((rows, cols)).astype(np.float32)
    if rows >= 5 and cols >= 2:
        x[0] = 0
        x[1] *= 1e-6  # in f16: absmax below 1.5e-5, mostly subnormal numbers
        x[2, 1] = np.nan
        x[3, 0] = -np.inf
        # Values halfway between two codes: 127 * (x / 127) is exact.
        x[4] = np.resize(np.array([127, 0.5, 1.5, -0.5, -2.5], np.float32), cols)
    return x.astype(dtype)


def padded(x, margin=3):
    """The same values in an array with gaps between its rows."""
    wide = np.zeros((x.shape[0], x.shape[1] + margin), x.dtype)
    wide[:, : x.shape[1]] = x
    return wide[:, : x.shape[1]]


def variants(x):
    yield x
    yield padded(x)
    yield np.asfortranarray(x)
    yield np.ascontiguousarray(x[::-1])[::-1]


class QuantizeNumpy(unittest.TestCase):
    def check(self, x, q, absmax, want_q, want_absmax):
        self.assertEqual((q.dtype, absmax.dtype), (np.int8, np.float32))
        np.testing.assert_array_equal(absmax, want_absmax)
        np.testing.assert_array_equal(q, want_q)

    def test_rowwise(self):
        for dtype in (np.float32, np.float16):
            for rows, cols in SHAPES:
                if cols == 0:
                    continue
                x = awkward(rows, cols, dtype)
                want = quantize_rows(x)
                for given in variants(x):
                    with self.subTest(dtype=dtype, shape=x.shape, strides=given.strides):
                        self.check(x, *ops.quantize_rowwise(given), *want)

    def test_columnwise_transpose(self):
        for dtype in (np.float32, np.float16):
            w = awkward(13, 83, dtype).T.copy()
            want_q, want_absmax = quantize_rows(np.ascontiguousarray(w.T))
            for given in variants(w):
                self.check(w, *ops.quantize_columnwise_transpose(given), want_q, want_absmax)

    def test_global(self):
        for dtype in (np.float32, np.float16):
            w = awkward(4, 4, dtype, seed=1)  # too few rows for special values
            absmax = absmax_of(w, None).reshape(1)
            q = codes_of(w, absmax)
            for given in variants(w):
                self.check(w, *ops.quantize_global(given), q, absmax)
                self.check(w, *ops.quantize_global_transpose(given), q.T, absmax)
        w[1, 1] = np.nan
        self.check(w, *ops.quantize_global(w), np.zeros_like(q), np.array([np.nan], np.float32))

    def test_read_only_and_misaligned(self):
        x = awkward(13, 83)
        want = quantize_rows(x)
        x.flags.writeable = False
        self.check(x, *ops.quantize_rowwise(x), *want)
        raw = np.zeros(x.nbytes + 1, np.uint8)
        shifted = raw[1:].view(np.uint8)[: x.nbytes].view(np.float32).reshape(x.shape)
        shifted[:] = x
        self.check(x, *ops.quantize_rowwise(shifted), *want)

    def test_rows_that_are_one(self):
        row = awkward(6, 31)[5:]
        want = quantize_rows(row.repeat(4, 0))
        self.check(row, *ops.quantize_rowwise(np.broadcast_to(row, (4, 31))), *want)

    def test_blockwise_transpose(self):
        for block_rows in (128, 256):
            for rows in (1, 130, 256):
                x = awkward(rows, 7)
                q_t, absmax = ops.quantize_blockwise_transpose(x, block_rows)
                blocks = -(-rows // block_rows)
                want_q = np.zeros((7, blocks * block_rows), np.int8)
                want_absmax = np.zeros((blocks, 7), np.float32)
                for b in range(blocks):
                    block = x[b * block_rows : (b + 1) * block_rows]
                    codes, want_absmax[b] = quantize_rows(np.ascontiguousarray(block.T))
                    want_q[:, b * block_rows :][:, : len(block)] = codes
                self.check(x, q_t, absmax, want_q, want_absmax)
                given = padded(x)
                self.check(
                    x, *ops.quantize_blockwise_transpose(given, block_rows), want_q, want_absmax
                )
        with self.assertRaises(ValueError):
            ops.quantize_blockwise_transpose(x, 0)

    def test_dequantize(self):
        x = awkward(6, 31, seed=2)
        q, absmax = ops.quantize_rowwise(x)
        for dtype in (None, np.float16):
            got = ops.dequantize_rowwise(padded(q), absmax, dtype)
            with np.errstate(invalid="ignore"):
                want = absmax[:, None] * (q.astype(np.float32) / np.float32(127))
            np.testing.assert_array_equal(got, want.astype(dtype or np.float32))
            self.assertTrue(np.isnan(got[2]).all() and np.isnan(got[3]).all())


class ActivationNumpy(unittest.TestCase):
    @staticmethod
    def exact(activation, x):
        """The value and the derivative of an activation, in float64."""
        if activation == "gelu_erf":
            phi = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x.ravel()]).reshape(x.shape)
            return x * phi, phi + x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        root = math.sqrt(2 / math.pi)
        t = np.tanh(root * (x + 0.044715 * x**3))
        slope = root * (1 + 3 * 0.044715 * x * x)
        return 0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope

    def test_values_codes_and_gradients(self):
        rng = np.random.default_rng(5)
        x = (3 * rng.standard_normal((13, 83))).astype(np.float32)
        g = rng.standard_normal((13, 83)).astype(np.float32)
        for activation in ("gelu_tanh", "gelu_erf"):
            value, slope = self.exact(activation, x.astype(np.float64))
            y = ops.activation_forward(padded(x), activation)
            np.testing.assert_allclose(y, value, rtol=0, atol=15 * 2.0**-22)
            dx = ops.activation_backward(g, np.asfortranarray(x), activation)
            np.testing.assert_allclose(dx, g * slope, rtol=0, atol=6 * 2.0**-22)
            q, absmax = ops.activation_forward_quantize(x, activation)
            want = ops.quantize_rowwise(y)
            np.testing.assert_array_equal(q, want[0])
            np.testing.assert_array_equal(absmax, want[1])
            both, q, absmax, sums = ops.activation_backward_quantize(g, x, activation)
            want = ops.quantize_rowwise(dx)
            np.testing.assert_array_equal(both, dx)
            np.testing.assert_array_equal(q, want[0])
            np.testing.assert_array_equal(absmax, want[1])
            np.testing.assert_allclose(sums, dx.sum(0), rtol=1e-4, atol=1e-5)

    def test_dtypes(self):
        x = awkward(6, 31, np.float16)
        self.assertEqual(ops.activation_forward(x, "gelu_erf").dtype, np.float16)
        g = np.ones((6, 31), np.float32)
        self.assertEqual(ops.activation_backward(g, x, "gelu_erf").dtype, np.float32)
        with self.assertRaisesRegex(ValueError, "g has dtype f32; it must be x's, f16"):
            ops.activation_backward_quantize(g, x, "gelu_erf")
        with self.assertRaisesRegex(ValueError, "activation = 'relu'; it must be 'gelu_tanh' or"):
            ops.activation_forward(x, "relu")


class ProductsNumpy(unittest.TestCase):
    def test_gemm_s8s8s32(self):
        rng = np.random.default_rng(3)
        for m, n, k in ((1, 1, 1), (13, 332, 83), (7, 5, 300), (0, 4, 3), (3, 2, 0)):
            a = rng.integers(-127, 128, (m, k), np.int8)
            b = rng.integers(-127, 128, (n, k), np.int8)
            want = a.astype(np.int32) @ b.astype(np.int32).T
            for left, right in ((a, b), (padded(a), padded(b)), (np.asfortranarray(a), b)):
                got = ops.gemm_s8s8s32(left, right)
                self.assertEqual(got.dtype, np.int32)
                np.testing.assert_array_equal(got, want)

    def test_gemm_blockwise(self):
        rng = np.random.default_rng(4)
        g, x = (rng.standard_normal((300, n)).astype(np.float32) for n in (5, 9))
        q_g, absmax_g = ops.quantize_blockwise_transpose(g, 128)
        q_x, absmax_x = ops.quantize_blockwise_transpose(x, 128)
        partial = np.zeros((5, 9), np.float32)
        for b in range(3):
            of = slice(b * 128, (b + 1) * 128)
            sums = q_g[:, of].astype(np.int32) @ q_x[:, of].astype(np.int32).T
            scaled = sums.astype(np.float32) * absmax_x[b]
            # Emulates fmaf: float64 holds the product exactly, and the sum of these numbers closely enough.
            product = scaled.astype(np.float64) * absmax_g[b][:, None]
            partial = (product + partial).astype(np.float32)
        factor = np.array(0x38820610, np.uint32).view(np.float32)
        want = partial * factor
        args = (q_g, q_x, absmax_g, absmax_x, 128)
        whole = ops.gemm_blockwise(*args)
        # `want` is rounded twice and the library's result once, so the last bit may differ.
        np.testing.assert_array_max_ulp(whole, want, 1)
        np.testing.assert_array_equal(ops.gemm_blockwise(*args, rows=300), whole)
        half = ops.gemm_blockwise(*args, 300, np.float16)
        np.testing.assert_array_equal(half, whole.astype(np.float16))
        for rows in (-1, 0, 256, 385):
            with self.assertRaises(ValueError, msg=rows) as caught:
                ops.gemm_blockwise(*args, rows=rows)
            self.assertIn(str(rows), str(caught.exception))
        with self.assertRaises(ValueError) as caught:
            ops.gemm_blockwise(q_g, q_x, absmax_g, absmax_x[:2], 128)
        self.assertIn("absmax_b", str(caught.exception))

    def test_gemm_dequantize(self):
        rng = np.random.default_rng(4)
        m, n, k = 13, 37, 83
        a, b = rng.integers(-127, 128, (m, k), np.int8), rng.integers(-127, 128, (n, k), np.int8)
        rows = rng.random(m, np.float32)
        bias = rng.standard_normal(n).astype(np.float16)
        sums = (a.astype(np.int32) @ b.astype(np.int32).T).astype(np.float32)
        constant = np.float32(1) / np.float32(127 * 127)
        for scales in (rng.random(n, np.float32), rng.random(1, np.float32)):
            for given_bias in (None, bias):
                for dtype in (None, np.float16):
                    want = scales[None, :] * (rows[:, None] * (sums * constant))
                    if given_bias is not None:
                        want = want + bias.astype(np.float32)
                    got = ops.gemm_dequantize(a, b, rows, scales, given_bias, dtype)
                    np.testing.assert_array_equal(got, want.astype(dtype or np.float32))
                    packed = ops.PackedWeight(b)
                    again = ops.gemm_dequantize(a, packed, rows, scales, given_bias, dtype)
                    np.testing.assert_array_equal(again, got)

    def test_packed_weight_is_a_copy(self):
        b = np.random.default_rng(5).integers(-127, 128, (6, 40), np.int8)
        wide = np.zeros((6, 50), np.int8)
        wide[:, :40] = b
        packed = ops.PackedWeight(wide[:, :40])
        wide[:] = 0
        self.assertEqual(packed.shape, (6, 40))
        self.assertGreaterEqual(packed.nbytes, b.size)
        scales = np.ones(1, np.float32)
        a = np.eye(40, dtype=np.int8)
        got = ops.gemm_dequantize(a, packed, np.ones(40, np.float32), scales)
        np.testing.assert_array_equal(got, ops.gemm_dequantize(a, b, np.ones(40, np.float32), scales))

    def test_rotate_quantize(self):
        x = np.random.default_rng(6).standard_normal((5, 512)).astype(np.float32)
        for group in (16, 64, 256):
            got = ops.rotate_quantize(x, group)
            for one, other in zip(got, ops.quantize_rowwise(ops.rotate(x, group))):
                np.testing.assert_array_equal(one, other)
            activated = ops.activation_forward(x, "gelu_erf")
            want = ops.quantize_rowwise(ops.rotate(activated, group))
            for one, other in zip(ops.rotate_quantize(x, group, "gelu_erf"), want):
                np.testing.assert_array_equal(one, other)


class Rejections(unittest.TestCase):
    def rejects(self, kind, words, function, *arguments, **options):
        with self.assertRaises(kind) as caught:
            function(*arguments, **options)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_dtype(self):
        x = np.zeros((2, 3))
        self.rejects(TypeError, ("x", "float64", "float32"), ops.quantize_rowwise, x)
        self.rejects(TypeError, ("w", "int8"), ops.quantize_global, x.astype(np.int8))
        self.rejects(TypeError, (">f4",), ops.quantize_rowwise, x.astype(">f4"))
        codes = x.astype(np.int8)
        self.rejects(TypeError, ("absmax", "float64"), ops.dequantize_rowwise, codes, np.zeros(2))
        scales = np.zeros(2, np.float32)
        self.rejects(TypeError, ("dtype", "int32"), ops.dequantize_rowwise, codes, scales, np.int32)
        self.rejects(TypeError, ("b ", "float64"), ops.gemm_s8s8s32, codes, x)
        self.rejects(TypeError, ("b ", "float64"), ops.PackedWeight, x)
        self.rejects(ValueError, ("rotation", "3"), ops.rotate_quantize, x.astype(np.float32), 3)
        packed = ops.PackedWeight(codes)
        self.rejects(ValueError, ("[2,3]", "[2,4]"), ops.gemm_dequantize, np.zeros((2, 4), np.int8), packed, scales, scales)

    def test_shape(self):
        codes = np.zeros((2, 3), np.int8)
        scales = np.zeros(2, np.float32)
        self.rejects(
            ValueError, ("x", "(4,)", "two"), ops.quantize_rowwise, np.zeros(4, np.float32)
        )
        self.rejects(ValueError, ("absmax", "(2,)"), ops.dequantize_rowwise, codes, scales[:1])
        self.rejects(
            ValueError,
            ("absmax_b",),
            ops.gemm_dequantize,
            codes,
            codes,
            scales,
            np.zeros(3, np.float32),
        )
        self.rejects(
            ValueError,
            ("bias", "(2,)"),
            ops.gemm_dequantize,
            codes,
            codes,
            scales,
            scales,
            np.zeros(3, np.float32),
        )
        with self.assertRaises(switchback.InvalidArgument) as caught:
            ops.gemm_s8s8s32(codes, np.zeros((2, 4), np.int8))  # the library finds this error
        self.assertEqual(caught.exception.status, "invalid_argument")
        self.assertIn("4", str(caught.exception))

    def test_not_an_array(self):
        self.rejects(TypeError, ("list", "numpy"), ops.quantize_rowwise, [[1.0]])
        self.rejects(TypeError, ("None",), ops.quantize_rowwise, None)
        codes = np.zeros((2, 3), np.int8)
        self.rejects(TypeError, ("absmax", "list"), ops.dequantize_rowwise, codes, [1.0, 1.0])


@unittest.skipIf(torch is None, "torch is not installed")
class Torch(unittest.TestCase):
    def test_equals_numpy(self):
        x = awkward(13, 83)
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            tensor = torch.from_numpy(x).to(dtype)
            want = quantize_rows(tensor.float().numpy())
            strided = torch.cat([tensor, tensor], 1)[:, :83]
            expanded = tensor[5:6].expand(4, -1)
            for given in (
                tensor,
                strided,
                tensor.t().contiguous().t(),
                tensor.clone().requires_grad_(),
            ):
                q, absmax = ops.quantize_rowwise(given)
                self.assertEqual(
                    (q.dtype, absmax.dtype, q.device), (torch.int8, torch.float32, tensor.device)
                )
                np.testing.assert_array_equal(q.numpy(), want[0])
                np.testing.assert_array_equal(absmax.numpy(), want[1])
            q, _ = ops.quantize_rowwise(expanded)
            np.testing.assert_array_equal(q.numpy(), want[0][5:6].repeat(4, 0))
            q, absmax = ops.quantize_columnwise_transpose(tensor.t())
            np.testing.assert_array_equal(q.numpy(), want[0])
            widened = ops.dequantize_rowwise(q, absmax, dtype)
            self.assertEqual(widened.dtype, dtype)

    def test_empty_tensors(self):
        for shape in ((0, 64), (64, 0), (0, 0)):
            x, (rows, cols) = torch.zeros(shape), shape
            for result, want in (
                (ops.quantize_rowwise(x), (shape, (rows,))),
                (ops.quantize_columnwise_transpose(x), ((cols, rows), (cols,))),
                (ops.quantize_global(x), (shape, (1,))),
                (ops.quantize_global_transpose(x), ((cols, rows), (1,))),
                (ops.rotate_quantize(x, 16), (shape, (rows,))),
                (ops.activation_forward_quantize(x, "gelu_erf"), (shape, (rows,))),
                ((ops.rotate(x, 16),), (shape,)),
                ((ops.activation_forward(x, "gelu_tanh"),), (shape,)),
                ((ops.activation_backward(x, x, "gelu_tanh"),), (shape,)),
                ((ops.gemm_s8s8s32(x.to(torch.int8), x.to(torch.int8)),), ((rows, rows),)),
            ):
                self.assertEqual(tuple(tuple(each.shape) for each in result), want)

    def test_products(self):
        a = torch.randint(-127, 128, (13, 83), dtype=torch.int8)
        b = torch.randint(-127, 128, (9, 83), dtype=torch.int8)
        want = a.int().numpy() @ b.int().numpy().T
        np.testing.assert_array_equal(ops.gemm_s8s8s32(a, b).numpy(), want)
        ones = torch.ones(13), torch.ones(1)
        bias = torch.ones(9, dtype=torch.bfloat16)
        got = ops.gemm_dequantize(a, b, *ones, bias, dtype=torch.bfloat16)
        floats = want.astype(np.float32) * (np.float32(1) / np.float32(127 * 127)) + 1
        self.assertTrue(torch.equal(got, torch.from_numpy(floats).bfloat16()))

    def test_a_negated_view(self):
        z = torch.complex(torch.ones(2, 3), torch.ones(2, 3)).conj().imag
        self.assertTrue(z.is_neg())
        q, _ = ops.quantize_rowwise(z)
        self.assertTrue((q == -127).all())

    def test_rejects(self):
        x = torch.zeros(2, 3)
        with self.assertRaisesRegex(TypeError, "float64"):
            ops.quantize_rowwise(x.double())
        with self.assertRaisesRegex(TypeError, "sparse"):
            ops.quantize_rowwise(x.to_sparse())
        # The operators, which switchback.nn defines if torch can, would accept tensors without memory.
        without_operators = mock.patch.object(ops, "_operators", None)
        with without_operators, self.assertRaisesRegex(switchback.Unsupported, "meta"):
            ops.quantize_rowwise(x.to("meta"))
        with self.assertRaisesRegex(TypeError, "ndarray"):
            ops.gemm_s8s8s32(x.to(torch.int8), np.zeros((2, 3), np.int8))
        freed = torch.zeros(4, 4)
        (freed.untyped_storage() if hasattr(freed, "untyped_storage") else freed.storage()).resize_(
            0
        )
        with self.assertRaisesRegex(ValueError, "storage"):
            ops.quantize_rowwise(freed)


class NamesOfBitsandbytes(unittest.TestCase):
    """The kernels under the names, and with the arguments, that bitsandbytes.triton had."""

    def setUp(self):
        rng = np.random.default_rng(3)
        self.x = rng.standard_normal((5, 17)).astype(np.float32)
        self.w = rng.standard_normal((9, 17)).astype(np.float32)
        self.bias = rng.standard_normal(9).astype(np.float32)

    def test_quantize(self):
        for name in ("quantize_rowwise", "quantize_global", "quantize_global_transpose"):
            self.assertTrue(callable(getattr(switchback, name)))
        got = switchback.quantize_columnwise_and_transpose(self.w)
        for a, b in zip(got, ops.quantize_columnwise_transpose(self.w)):
            np.testing.assert_array_equal(a, b)

    def test_products(self):
        q, state_x = ops.quantize_rowwise(self.x)
        for quantize, function in (
            (ops.quantize_rowwise, switchback.int8_matmul_rowwise_dequantize),
            (ops.quantize_global, switchback.int8_matmul_mixed_dequantize),
        ):
            codes, state_w = quantize(self.w)
            for bias in (None, self.bias):
                for dtype in (None, np.float32):
                    got = function(q, codes.T, state_x, state_w, bias, dtype=dtype)
                    want = ops.gemm_dequantize(
                        q, codes, state_x, state_w, bias, dtype or np.float16
                    )
                    np.testing.assert_array_equal(got, want)
                    self.assertEqual(got.dtype, dtype or np.float16)
            # Scales as bitsandbytes had them: float16, and with two dimensions.
            half = function(q, codes.T, state_x.astype(np.float16)[:, None], state_w, None)
            self.assertEqual(half.shape, (5, 9))
        with self.assertRaisesRegex(ValueError, "int8_matmul_mixed_dequantize: b has shape"):
            switchback.int8_matmul_mixed_dequantize(q, codes[0], state_x, state_w)

    def test_torch(self):
        torch = require_torch()
        x, w = torch.from_numpy(self.x), torch.from_numpy(self.w)
        q, state_x = ops.quantize_rowwise(x)
        codes, state_w = ops.quantize_global(w)
        y = switchback.int8_matmul_mixed_dequantize(q, codes.t(), state_x, state_w, None)
        self.assertIs(y.dtype, torch.float16)
        self.assertTrue(
            torch.equal(y, ops.gemm_dequantize(q, codes, state_x, state_w, dtype=torch.float16))
        )

    def test_layers(self):
        torch = require_torch()
        x = torch.from_numpy(self.x)
        layer = switchback.SwitchBackLinearBnb(17, 9, memory_efficient_backward=True)
        self.assertTrue(layer.mem_efficient and layer.vector_wise_quantization)
        twin = switchback.SwitchBackLinearVectorwise(17, 9)
        twin.load_state_dict(layer.state_dict())
        self.assertTrue(torch.equal(layer(x), twin(x)))
        with self.assertRaisesRegex(ValueError, "threshold = 6.0"):
            switchback.SwitchBackLinearBnb(17, 9, threshold=6.0)
        with self.assertRaisesRegex(ValueError, "has_fp16_weights"):
            switchback.SwitchBackLinearBnb(17, 9, has_fp16_weights=False)
        y = switchback.StandardLinearFunction.apply(x, layer.weight, layer.bias)
        self.assertTrue(torch.equal(y, torch.nn.functional.linear(x, layer.weight, layer.bias)))


if __name__ == "__main__":
    unittest.main()
