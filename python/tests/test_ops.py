# SPDX-License-Identifier: Apache-2.0
"""The kernels on NumPy arrays and torch tensors, compared bit for bit with NumPy code."""

import math
import unittest
from unittest import mock

import numpy as np
from support import absmax_of, codes_of, hadamard, quantize_rows

import switchback
from switchback import ops

try:
    import torch
except ImportError:
    torch = None


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


class Case(unittest.TestCase):
    def check(self, got, want):
        """Compares codes and scales."""
        for array, wanted, dtype in zip(got, want, (np.int8, np.float32)):
            self.assertEqual(array.dtype, dtype)
            np.testing.assert_array_equal(array, wanted)


class QuantizeNumpy(Case):
    def test_rowwise(self):
        for dtype in (np.float32, np.float16):
            for rows, cols in ((1, 1), (13, 83), (5, 64), (3, 129), (64, 1), (0, 7)):
                x = awkward(rows, cols, dtype)
                want = quantize_rows(x)
                for given in variants(x):
                    with self.subTest(dtype=dtype, shape=x.shape, strides=given.strides):
                        self.check(ops.quantize_rowwise(given), want)

    def test_columnwise_transpose(self):
        for dtype in (np.float32, np.float16):
            w = awkward(13, 83, dtype).T.copy()
            for given in variants(w):
                self.check(ops.quantize_columnwise_transpose(given), quantize_rows(w.T))

    def test_global(self):
        for dtype in (np.float32, np.float16):
            w = awkward(4, 4, dtype, seed=1)  # too few rows for special values
            absmax = absmax_of(w, None).reshape(1)
            q = codes_of(w, absmax)
            for given in variants(w):
                self.check(ops.quantize_global(given), (q, absmax))
                self.check(ops.quantize_global_transpose(given), (q.T, absmax))
        w[1, 1] = np.nan
        self.check(ops.quantize_global(w), (np.zeros_like(q), np.array([np.nan])))

    def test_read_only_and_misaligned(self):
        x = awkward(13, 83)
        want = quantize_rows(x)
        x.flags.writeable = False
        self.check(ops.quantize_rowwise(x), want)
        raw = np.zeros(x.nbytes + 1, np.uint8)
        shifted = raw[1:].view(np.float32).reshape(x.shape)
        shifted[:] = x
        self.check(ops.quantize_rowwise(shifted), want)

    def test_rows_that_are_one(self):
        row = awkward(6, 31)[5:]
        same = np.broadcast_to(row, (4, 31))
        self.check(ops.quantize_rowwise(same), quantize_rows(row.repeat(4, 0)))

    def test_blockwise_transpose(self):
        for rows, block_rows in ((1, 128), (130, 128), (256, 128), (300, 256)):
            x = awkward(rows, 7)
            blocks = -(-rows // block_rows)
            want = np.zeros((7, blocks * block_rows), np.int8), np.zeros((blocks, 7), np.float32)
            for b in range(blocks):
                block = x[b * block_rows : (b + 1) * block_rows]
                codes, want[1][b] = quantize_rows(block.T)
                want[0][:, b * block_rows :][:, : len(block)] = codes
            for given in (x, padded(x)):
                self.check(ops.quantize_blockwise_transpose(given, block_rows), want)
        with self.assertRaises(ValueError):
            ops.quantize_blockwise_transpose(x, 0)

    def test_scaled_columns(self):
        rng = np.random.default_rng(7)
        g, scales = rng.standard_normal((5, 11)).astype(np.float32), rng.random(11, np.float32)
        self.check(ops.quantize_rowwise_scaled(g, scales), quantize_rows(g * scales))
        with self.assertRaisesRegex(ValueError, r"column_scales has shape \(10,\).*\(11,\)"):
            ops.quantize_rowwise_scaled(g, scales[1:])

    def test_dequantize(self):
        x = awkward(6, 31, seed=2)
        q, absmax = ops.quantize_rowwise(x)
        for dtype in (None, np.float16):
            got = ops.dequantize_rowwise(padded(q), absmax, dtype)
            with np.errstate(invalid="ignore"):
                want = absmax[:, None] * (q.astype(np.float32) / np.float32(127))
            np.testing.assert_array_equal(got, want.astype(dtype or np.float32))
            self.assertTrue(np.isnan(got[2]).all() and np.isnan(got[3]).all())


class ActivationNumpy(Case):
    @staticmethod
    def exact(activation, x):
        """The value of an activation, in float64."""
        if activation == "gelu_erf":
            return x * np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x.ravel()]).reshape(x.shape)
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    def test_values_codes_and_gradients(self):
        rng = np.random.default_rng(5)
        x = (3 * rng.standard_normal((13, 83))).astype(np.float32)
        g = rng.standard_normal((13, 83)).astype(np.float32)
        wide, h = x.astype(np.float64), 1e-5
        for activation in ("gelu_tanh", "gelu_erf"):
            y = ops.activation_forward(padded(x), activation)
            np.testing.assert_allclose(y, self.exact(activation, wide), rtol=0, atol=15 * 2.0**-22)
            dx = ops.activation_backward(g, np.asfortranarray(x), activation)
            slope = (self.exact(activation, wide + h) - self.exact(activation, wide - h)) / (2 * h)
            # The difference quotient has an error of about h * h, the product one of a few roundings.
            np.testing.assert_allclose(dx, g * slope, rtol=0, atol=6 * 2.0**-22)
            self.check(ops.activation_forward_quantize(x, activation), ops.quantize_rowwise(y))
            both, *quantized, sums = ops.activation_backward_quantize(g, x, activation)
            np.testing.assert_array_equal(both, dx)
            self.check(quantized, ops.quantize_rowwise(dx))
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


class ProductsNumpy(Case):
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
        scaled_g, scaled_x = (
            q.reshape(len(q), 3, 128) * absmax.T[:, :, None] / 127.0
            for q, absmax in ((q_g, absmax_g), (q_x, absmax_x))
        )
        want = np.einsum("mbr,nbr->mn", scaled_g, scaled_x)
        args = (q_g, q_x, absmax_g, absmax_x, 128)
        whole = ops.gemm_blockwise(*args)
        # The sum of three blocks in float32 has a handful of roundings; a sum is below 100.
        np.testing.assert_allclose(whole, want, rtol=0, atol=100 * 2.0**-21)
        np.testing.assert_array_equal(ops.gemm_blockwise(*args, rows=300), whole)
        half = ops.gemm_blockwise(*args, 300, np.float16)
        np.testing.assert_array_equal(half, whole.astype(np.float16))
        for rows in (-1, 0, 256, 385):
            with self.assertRaisesRegex(ValueError, str(rows)):
                ops.gemm_blockwise(*args, rows=rows)
        with self.assertRaisesRegex(ValueError, "absmax_b"):
            ops.gemm_blockwise(q_g, q_x, absmax_g, absmax_x[:2], 128)

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
        activated = ops.activation_forward(x, "gelu_erf")
        for group in (16, 256):
            rotated = ops.rotate(x, group)
            exact = (x.reshape(5, -1, group).astype(np.float64) @ hadamard(group)).reshape(x.shape)
            # Each value is a sum of `group` products, which takes log2(group) roundings of numbers below 5.
            np.testing.assert_allclose(rotated, exact, rtol=0, atol=8 * 5 * 2.0**-23)
            self.check(ops.rotate_quantize(x, group), ops.quantize_rowwise(rotated))
            want = ops.quantize_rowwise(ops.rotate(activated, group))
            self.check(ops.rotate_quantize(x, group, "gelu_erf"), want)


class Rejections(unittest.TestCase):
    def rejects(self, kind, words, function, *arguments, **options):
        with self.assertRaises(kind) as caught:
            function(*arguments, **options)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def setUp(self):
        self.codes = np.zeros((2, 3), np.int8)
        self.scales = np.zeros(2, np.float32)

    def test_dtype(self):
        x, codes, scales = np.zeros((2, 3)), self.codes, self.scales
        self.rejects(TypeError, ("x", "float64", "float32"), ops.quantize_rowwise, x)
        self.rejects(TypeError, ("w", "int8"), ops.quantize_global, codes)
        self.rejects(TypeError, (">f4",), ops.quantize_rowwise, x.astype(">f4"))
        self.rejects(TypeError, ("absmax", "float64"), ops.dequantize_rowwise, codes, np.zeros(2))
        self.rejects(TypeError, ("dtype", "int32"), ops.dequantize_rowwise, codes, scales, np.int32)
        self.rejects(TypeError, ("b ", "float64"), ops.gemm_s8s8s32, codes, x)
        self.rejects(TypeError, ("b ", "float64"), ops.PackedWeight, x)
        self.rejects(ValueError, ("rotation", "3"), ops.rotate_quantize, x.astype(np.float32), 3)

    def test_shape(self):
        codes, scales = self.codes, self.scales
        row, long = np.zeros(4, np.float32), np.zeros(3, np.float32)
        wide, packed = np.zeros((2, 4), np.int8), ops.PackedWeight(codes)
        product = ops.gemm_dequantize
        self.rejects(ValueError, ("x", "(4,)", "two"), ops.quantize_rowwise, row)
        self.rejects(ValueError, ("absmax", "(2,)"), ops.dequantize_rowwise, codes, scales[:1])
        self.rejects(ValueError, ("absmax_b",), product, codes, codes, scales, long)
        self.rejects(ValueError, ("bias", "(2,)"), product, codes, codes, scales, scales, long)
        self.rejects(ValueError, ("[2,3]", "[2,4]"), product, wide, packed, scales, scales)
        with self.assertRaisesRegex(switchback.InvalidArgument, "4") as caught:
            ops.gemm_s8s8s32(codes, wide)  # the library finds this error
        self.assertEqual(caught.exception.status, "invalid_argument")

    def test_not_an_array(self):
        self.rejects(TypeError, ("list", "numpy"), ops.quantize_rowwise, [[1.0]])
        self.rejects(TypeError, ("None",), ops.quantize_rowwise, None)
        self.rejects(TypeError, ("absmax", "list"), ops.dequantize_rowwise, self.codes, [1.0, 1.0])


@unittest.skipIf(torch is None, "torch is not installed")
class Torch(Case):
    def test_equals_numpy(self):
        x = awkward(13, 83)
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            tensor = torch.from_numpy(x).to(dtype)
            want = quantize_rows(tensor.float().numpy())
            strided = torch.cat([tensor, tensor], 1)[:, :83]
            across = tensor.t().contiguous().t()
            for given in (tensor, strided, across, tensor.clone().requires_grad_()):
                q, absmax = ops.quantize_rowwise(given)
                self.assertEqual(q.device, tensor.device)
                self.check((q.numpy(), absmax.numpy()), want)
            q, _ = ops.quantize_rowwise(tensor[5:6].expand(4, -1))
            np.testing.assert_array_equal(q.numpy(), want[0][5:6].repeat(4, 0))
            q, absmax = ops.quantize_columnwise_transpose(tensor.t())
            self.check((q.numpy(), absmax.numpy()), want)
            self.assertEqual(ops.dequantize_rowwise(q, absmax, dtype).dtype, dtype)

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
        storage = freed.untyped_storage() if hasattr(freed, "untyped_storage") else freed.storage()
        storage.resize_(0)
        with self.assertRaisesRegex(ValueError, "storage"):
            ops.quantize_rowwise(freed)


class NamesOfBitsandbytes(Case):
    """The kernels under the names, and with the arguments, that bitsandbytes.triton had."""

    def setUp(self):
        rng = np.random.default_rng(3)
        self.x = rng.standard_normal((5, 17)).astype(np.float32)
        self.w = rng.standard_normal((9, 17)).astype(np.float32)
        self.bias = rng.standard_normal(9).astype(np.float32)

    def test_quantize(self):
        for name in ("quantize_rowwise", "quantize_global", "quantize_global_transpose"):
            self.assertIs(getattr(switchback, name), getattr(ops, name))
        got = switchback.quantize_columnwise_and_transpose(self.w)
        self.check(got, ops.quantize_columnwise_transpose(self.w))

    def test_products(self):
        q, state_x = ops.quantize_rowwise(self.x)
        for quantize, function in (
            (ops.quantize_rowwise, switchback.int8_matmul_rowwise_dequantize),
            (ops.quantize_global, switchback.int8_matmul_mixed_dequantize),
        ):
            codes, state_w = quantize(self.w)
            for bias in (None, self.bias):
                for options, dtype in (({}, np.float16), ({"dtype": np.float32}, np.float32)):
                    got = function(q, codes.T, state_x, state_w, bias, **options)
                    want = ops.gemm_dequantize(q, codes, state_x, state_w, bias, dtype)
                    np.testing.assert_array_equal(got, want)
                    self.assertEqual(got.dtype, dtype)
            # Scales as bitsandbytes had them: float16, and with two dimensions.
            half = function(q, codes.T, state_x.astype(np.float16)[:, None], state_w, None)
            self.assertEqual(half.shape, (5, 9))
        with self.assertRaisesRegex(ValueError, "int8_matmul_mixed_dequantize: b has shape"):
            switchback.int8_matmul_mixed_dequantize(q, codes[0], state_x, state_w)

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_torch(self):
        q, state_x = ops.quantize_rowwise(torch.from_numpy(self.x))
        codes, state_w = ops.quantize_global(torch.from_numpy(self.w))
        half = state_x.half()
        y = switchback.int8_matmul_mixed_dequantize(q, codes.t(), half[:, None], state_w, None)
        want = ops.gemm_dequantize(q, codes, half.float(), state_w, dtype=torch.float16)
        self.assertTrue(torch.equal(y, want))

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_layers(self):
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
