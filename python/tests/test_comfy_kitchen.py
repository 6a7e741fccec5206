# SPDX-License-Identifier: Apache-2.0
"""The backend for comfy-kitchen: its bits, the calls that it supports, and the data that it keeps for
weights; compared with comfy-kitchen's backend "eager"."""

import gc
import importlib.util
import itertools
import os
import types
import unittest
from unittest import mock

from support import ROOT, TensorCase, require_torch, run_python

torch = require_torch()

try:
    import comfy_kitchen
    from switchback.interop import comfy_kitchen as backend
except ImportError as error:
    raise unittest.SkipTest(f"comfy-kitchen cannot be used: {error}") from error

import switchback  # noqa: E402
from comfy_kitchen.exceptions import NoCapableBackendError  # noqa: E402
from comfy_kitchen.registry import registry  # noqa: E402
from comfy_kitchen.tensor import QuantizedTensor  # noqa: E402
from switchback import ops  # noqa: E402
from switchback.interop import _packed_weights  # noqa: E402
from switchback.nn import _rules  # noqa: E402
from switchback.nn._options import ROTATIONS  # noqa: E402
from torch.nn import functional  # noqa: E402

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
LAYOUT = "TensorWiseINT8Layout"


def run(name, *arguments, **options):
    """Calls the function of this backend, provided that comfy-kitchen's registry accepts it for the call."""
    names = list(backend.inspect.signature(getattr(backend, name)).parameters)
    named = dict(zip(names, arguments), **options)
    return registry.get_implementation(name, backend="switchback", kwargs=named)(**named)


def chosen(name, **arguments):
    return registry.get_capable_backend(name, arguments)


def codes_of(rows):
    """Quantizes rows by the rules of docs/numerics.md, in float32: returns codes and absmax."""
    absmax = rows.abs().amax(-1)
    divisor = torch.where(absmax == 0, torch.ones(()), absmax)[:, None]
    return torch.round(127 * (rows / divisor)), absmax


def reference(x, weight, scale, bias, dtype, group):
    """Computes int8_linear by the rules of docs/numerics.md."""
    rows = x.reshape(-1, x.shape[-1])
    rows = ops.rotate(rows, group) if group else rows.float()
    codes, absmax = codes_of(rows)
    sums = (codes.double() @ weight.double().t()).float()  # exact
    constant = torch.tensor(0x38820610, dtype=torch.int32).view(torch.float32)
    y = (scale.float().reshape(1, -1) * 127) * (absmax[:, None] * (sums * constant))
    if bias is not None:
        y = y + bias.float()
    return y.to(dtype).reshape(*x.shape[:-1], weight.shape[0])


def weight_codes(n, k):
    return torch.randint(-128, 128, (n, k), dtype=torch.int8)


def snr(got, want):
    return float(20 * torch.log10(want.norm() / (got.double() - want).norm()))


class Case(TensorCase):
    def setUp(self):
        super().setUp()
        backend.register(packed_bytes=1 << 24)
        self.addCleanup(backend.unregister)


class Linear(Case):
    def test_bits(self):
        for dtype, out, group in itertools.product(FLOATS, FLOATS, (0, *ROTATIONS)):
            n, k = 7, 1024
            x, weight = torch.randn(2, 3, k).to(dtype), weight_codes(n, k)
            for scale in (torch.rand(()), torch.rand(n), torch.rand(n, 1).to(torch.bfloat16)):
                for bias in (None, torch.randn(n), torch.randn(n).to(dtype)):
                    want = reference(x, weight, scale, bias, out, group)
                    got = run("int8_linear", x, weight, scale, bias, out, bool(group), group or 256)
                    self.equal(got, want, (dtype, out, group, scale.shape))

    def test_shapes(self):
        x, weight, scale = torch.randn(17, 65), weight_codes(33, 65), torch.rand(33)
        want = reference(x, weight, scale, None, torch.bfloat16, 0)
        self.equal(run("int8_linear", x, weight, scale), want)
        for shape in ((64,), (1, 64), (2, 1, 3, 64), (0, 64), (3, 0, 64)):
            x, weight, scale = torch.randn(shape), weight_codes(8, 64), torch.rand(8, 1)
            want = reference(x, weight, scale, None, x.dtype, 16)
            got = run("int8_linear", x, weight, scale, None, x.dtype, True, 16)
            self.equal(got, want, shape)
        none = run("int8_linear", torch.randn(3, 64), weight_codes(0, 64), torch.rand(()))
        self.assertEqual(none.shape, (3, 0))

    def test_strides(self):
        weight, scale, x = weight_codes(48, 64), torch.rand(48), torch.randn(64, 5, 4)
        want = reference(x.permute(2, 1, 0), weight, scale, None, torch.float32, 16)
        whole = torch.zeros(48, 100, dtype=torch.int8)
        whole[:, 7:71] = weight
        for given in (weight, weight.t().contiguous().t(), whole[:, 7:71]):
            for _ in range(2):
                got = run("int8_linear", x.permute(2, 1, 0), given, scale, None, x.dtype, True, 16)
                self.equal(got, want, given.stride())
        bias = torch.randn(48, 2)[:, 0]
        want = reference(x[..., 0].t()[:, :64], weight, scale, bias, torch.float32, 0)
        self.equal(run("int8_linear", x[..., 0].t(), weight, scale, bias, x.dtype), want)

    def test_activations_and_residual(self):
        weight, scale = weight_codes(24, 64), torch.rand(24)
        norm, residual, gain = torch.rand(64), torch.randn(2, 3, 24), torch.randn(24)
        for dtype, act in itertools.product(FLOATS, (None, "none", "gelu_tanh", "swiglu", "situ", "rms_norm")):
            width = 128 if act in ("swiglu", "situ") else 64
            x = torch.randn(2, 3, width).to(dtype)
            of_act = {"input_act_weight": norm, "input_act_eps": 1e-5} if act == "rms_norm" else {}
            if act == "gelu_tanh":
                activated = ops.activation_forward(x.reshape(-1, 64), act).reshape(2, 3, 64)
            else:
                activated = backend._helpers.apply_input_act(x, act, *of_act.values())
            plain = reference(activated, weight, scale, None, dtype, 16)
            options = {"convrot": True, "convrot_groupsize": 16, "input_act": act, **of_act}
            got = run("int8_linear", x, weight, scale, None, dtype, **options)
            self.equal(got, plain, (dtype, act))
            got = run(
                "int8_linear",
                x, weight, scale, None, dtype, **options, residual=residual, residual_scale=gain,
            )  # fmt: skip
            want = torch.addcmul(residual.to(dtype), plain, gain.to(dtype))
            self.equal(got, want, (dtype, act))
        self.assertEqual(chosen("int8_linear", x=x, weight=weight, input_act="relu"), "eager")

    def test_modulated(self):
        x, weight, scale, row = torch.randn(2, 3, 64), weight_codes(24, 64), torch.rand(24), torch.randn(64)
        want = reference(x * (1 + row), weight, scale, None, x.dtype, 0)
        self.equal(run("int8_linear_modulated", x, row, weight, scale, None, x.dtype), want)
        normed = functional.rms_norm(x, (64,), row, 1e-6)
        want = reference(normed * (1 + row), weight, scale, None, x.dtype, 0)
        got = run("int8_linear_rms_modulated", x, row, 1e-6, row, weight, scale, None, x.dtype)
        self.equal(got, want)

    def test_non_finite_stays_visible(self):
        x, weight = torch.randn(4, 64), weight_codes(8, 64)
        x[1, 3], x[2, 5] = float("nan"), float("inf")
        y = run("int8_linear", x, weight, torch.ones(()), None, x.dtype)
        self.assertEqual(y.isnan().all(1).tolist(), [False, True, True, False])
        self.assertEqual(y.isnan().any(1).tolist(), [False, True, True, False])


class Quantize(Case):
    def test_rows_and_tensors(self):
        for dtype, shape in itertools.product(FLOATS, ((5, 64), (2, 3, 33), (7,), (0, 8), (3, 0))):
            x = torch.randn(shape).to(dtype)
            codes, scale = run("quantize_int8_rowwise", x)
            want, absmax = codes_of(x.float().reshape(-1, shape[-1])) if x.numel() else (x, None)
            self.equal(codes, want.reshape(shape).to(torch.int8), shape)
            self.assertEqual(scale.shape, (*shape[:-1], 1))
            codes, one = run("quantize_int8_tensorwise", x)
            self.assertEqual((codes.shape, codes.dtype, one.shape), (x.shape, torch.int8, ()))
            if x.numel():
                self.equal(scale, (absmax / 127).reshape(scale.shape))
                want, absmax = codes_of(x.float().reshape(1, -1))
                self.equal(codes, want.reshape(shape).to(torch.int8), shape)
                self.equal(one, absmax[0] / 127)
        codes, scale = run("quantize_int8_rowwise", torch.zeros(2, 8))
        self.assertEqual((codes.abs().max(), scale.min() > 0), (0, True))
        self.assertTrue(run("quantize_int8_rowwise", torch.full((1, 4), float("nan")))[1].isnan().all())

    def test_with_a_given_scale(self):
        x = (torch.randn(9, 16) * 100).to(torch.bfloat16)
        x[0, 0] = float("nan")
        for scale in (0.5, torch.tensor(0.5), torch.rand(8, 1).to(torch.float16), "recalculate"):
            codes, told = run("quantize_int8_tensorwise", x[1:], scale)
            want = (x[1:].float() / told).round().clamp(-128, 127).to(torch.int8)
            self.equal(codes, want)
        self.assertEqual(run("quantize_int8_tensorwise", x, 0.5)[0][0, 0], 0)
        self.assertEqual(run("quantize_int8_tensorwise", torch.ones(3), 0.0)[0].tolist(), [127] * 3)

    def test_rotations(self):
        for dtype, group in itertools.product(FLOATS, (16, 256)):
            x = torch.randn(6, 512).to(dtype)
            rotated = ops.rotate(x, group)
            want, absmax = codes_of(rotated)
            want = want.to(torch.int8)
            codes, scale = run("quantize_int8_convrot_weight", x, group)
            self.equal(codes, want)
            self.equal(scale, (absmax / 127)[:, None])
            h = comfy_kitchen.tensor.int8_utils._build_hadamard(group, dtype=dtype)
            for given in (h, h.clone()):
                codes, scale = run("quantize_and_rotate_rowwise", x.reshape(2, 3, 512), given, group)
                self.equal(codes, want.reshape(2, 3, 512))
                self.assertEqual(scale.shape, (2, 3, 1))
            for other in (-h, torch.eye(group), h[:4]):
                arguments = {"x": x, "h": other, "group_size": group}
                self.assertEqual(chosen("quantize_and_rotate_rowwise", **arguments), "eager")
            self.equal(run("rotate_int8_convrot_weight", x, group), rotated.to(dtype))

    def test_dequantize(self):
        q = weight_codes(40, 512)
        for scale in (torch.rand(()), torch.rand(1), torch.rand(40), torch.rand(40, 1)):
            want = q.float() * (scale.reshape(-1, 1) if scale.numel() > 1 else scale)
            self.equal(run("dequantize_int8_simple", q, scale), want)
            for code, dtype in enumerate(FLOATS):
                got = run("dequantize_int8_simple_dtype", q, scale, code)
                self.equal(got, want.to(dtype))
                rotated = ops.rotate(want, 256)
                got = run("dequantize_int8_convrot_weight_dtype", q, scale, 256, code)
                self.equal(got, rotated.to(dtype))
            self.equal(run("dequantize_int8_convrot_weight", q, scale, 256), rotated)
        x = torch.randn(2, 3, 8)
        codes, scale = run("quantize_int8_rowwise", x)
        self.equal(run("dequantize_int8_simple", codes, scale), codes * scale)
        with mock.patch.object(backend, "_CHUNK", 1000):  # so that it takes several pieces
            self.equal(run("dequantize_int8_simple", q, scale=torch.ones(40)), q.float())

    def test_product(self):
        a, b = weight_codes(5, 33), weight_codes(33, 7)
        want = (a.double() @ b.double()).to(torch.int32)
        self.equal(run("mm_int8", a, b), want)
        self.equal(run("mm_int8", a, b.t().contiguous().t()), want)


class Registration(Case):
    def test_order(self):
        before = list(registry._priority)
        backend.register(before="eager")
        backend.register(before="eager")
        order = list(registry._priority)
        self.assertEqual(order.count("switchback"), 1)
        self.assertEqual(order[order.index("switchback") + 1], "eager")
        backend.register()
        self.assertEqual(registry._priority, before)
        with self.assertRaisesRegex(ValueError, "before = 'none'"):
            backend.register(before="none")
        with self.assertRaisesRegex(ValueError, "limit = -1"):
            backend.register(packed_bytes=-1)

    def test_listed_or_not(self):
        taken = backend.register()
        self.assertEqual(set(taken), set(backend._FUNCTIONS))
        self.assertEqual(backend.status()["left"], {})
        self.assertEqual(backend.status()["priority"][0], "switchback")
        listed = comfy_kitchen.list_backends()["switchback"]
        self.assertEqual(listed["capabilities"], sorted(taken))
        self.assertTrue(listed["available"] and not listed["disabled"])
        backend.unregister()
        backend.unregister()
        self.assertNotIn("switchback", comfy_kitchen.list_backends())
        self.assertEqual(chosen("quantize_int8_rowwise", x=torch.ones(2, 2)), "eager")
        registry.disable("switchback")  # registering a backend also enables it
        backend.register()
        self.assertEqual(chosen("quantize_int8_rowwise", x=torch.ones(2, 2)), "switchback")

    def test_what_goes_on_to_the_next(self):
        x, q, scale = torch.randn(4, 64), weight_codes(8, 64), torch.rand(8)
        linear = {"x": x, "weight": q, "weight_scale": scale}
        self.assertEqual(chosen("int8_linear", **linear), "switchback")
        for changed in (
            {"convrot": True, "convrot_groupsize": 32},
            {"convrot": True, "convrot_groupsize": 256},
            {"x": torch.randn(4, 65)},
            {"x": x.clone().requires_grad_()},
            {"weight_scale": torch.rand(7)},
            {"bias": torch.rand(9)},
            {"out_dtype": torch.float64},
            {"x": torch.randn(4, 64, device="meta")},
        ):
            self.assertEqual(chosen("int8_linear", **{**linear, **changed}), "eager", changed)
        with torch.no_grad():
            self.assertEqual(chosen("int8_linear", **{**linear, "x": x.clone().requires_grad_()}), "switchback")
        for name, arguments in (
            ("quantize_int8_rowwise", {"x": x, "stochastic_rounding": 3}),
            ("quantize_int8_tensorwise", {"x": x, "stochastic_rounding": 3}),
            ("quantize_int8_convrot_weight", {"weight": x, "group_size": 16, "stochastic_rounding": 1}),
            ("quantize_int8_convrot_weight", {"weight": x, "group_size": 48}),
            ("dequantize_int8_simple_dtype", {"q": q, "scale": scale, "output_dtype_code": 9}),
        ):
            self.assertEqual(chosen(name, **arguments), "eager", name)
        with self.assertRaises(NoCapableBackendError):
            chosen("quantize_int8_rowwise", x=x.double())
        with self.assertRaisesRegex(NotImplementedError, "stochastic_rounding = 3"):
            backend.quantize_int8_rowwise(x, stochastic_rounding=3)

    def test_a_later_version_with_further_parameters(self):
        module = types.ModuleType("eager")
        real = backend.importlib.import_module("comfy_kitchen.backends.eager")
        module.__dict__.update(real.__dict__)

        def later(x, stochastic_rounding=0, blocks=1, table=None):
            pass

        module.quantize_int8_rowwise = later
        module.mm_int8 = lambda b, a: None
        module.rotate_int8_convrot_weight = lambda weight, group_size, must: None
        with mock.patch.object(backend.importlib, "import_module", lambda name: module):
            taken = backend.register()
        self.addCleanup(backend.register)
        self.assertNotIn("mm_int8", taken)
        self.assertNotIn("rotate_int8_convrot_weight", taken)
        self.assertIn("must", backend.status()["left"]["rotate_int8_convrot_weight"])
        x, name = torch.randn(3, 8), "quantize_int8_rowwise"
        self.assertEqual(chosen(name, x=x, blocks=1, table=None), "switchback")
        self.assertEqual(chosen(name, x=x, blocks=2), "eager")
        self.assertEqual(chosen(name, x=x, table=x), "eager")
        self.equal(backend.quantize_int8_rowwise(x, blocks=1)[0], run(name, x)[0])
        with self.assertRaisesRegex(NotImplementedError, "blocks"):
            backend.quantize_int8_rowwise(x, blocks=2)
        with self.assertRaisesRegex(TypeError, "nothing"):
            backend.quantize_int8_rowwise(x, nothing=2)

    def test_custom_node(self):
        path = os.path.join(ROOT, "examples", "comfyui", "switchback_int8", "__init__.py")
        if not os.path.exists(path):
            self.skipTest("the examples are not here")
        backend.unregister()
        spec = importlib.util.spec_from_file_location("switchback_int8", path)
        node = importlib.util.module_from_spec(spec)
        with self.assertLogs(level="INFO") as logged:
            spec.loader.exec_module(node)
        self.assertIn("int8_linear", logged.output[0])
        self.assertEqual(node.NODE_CLASS_MAPPINGS, {})
        self.assertEqual(chosen("quantize_int8_rowwise", x=torch.ones(2, 2)), "switchback")

    def test_without_comfy_kitchen(self):
        program = (
            "import sys; sys.modules['comfy_kitchen'] = None\n"
            "import switchback.interop.comfy_kitchen"
        )
        done = run_python("-c", program)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("pip install comfy-kitchen", done.stderr)


class Kept(Case):
    """The packed weights that the backend keeps: every way in which a weight can change, be freed or be too
    large."""

    def call(self, weight):
        scale = torch.ones(weight.shape[0])
        got = run("int8_linear", self.x, weight, scale, None, torch.float32)
        self.equal(got, reference(self.x, weight, scale, None, torch.float32, 0))

    def setUp(self):
        super().setUp()
        self.x = torch.randn(3, 128)

    def held(self):
        status = backend.status()
        return status["packed_weights"], status["packed_bytes"]

    def test_few_rows_read_the_weight_itself(self):
        weight = weight_codes(16400, 128)
        self.assertGreaterEqual(weight.numel(), _rules.MANY_CODES)
        self.call(weight)
        self.assertEqual(self.held()[0], 0)
        weight.data.neg_()
        self.call(weight)
        with switchback.nn.reuse_weight_codes():
            self.call(weight)
        self.assertEqual(self.held()[0], 1)

    def test_is_used_again(self):
        weight = weight_codes(64, 128)
        with mock.patch.object(_packed_weights, "_Form", wraps=_packed_weights._Form) as made:
            for _ in range(3):
                self.call(weight)
                self.call(weight.view(64, 128))  # another tensor with the same memory
                with torch.inference_mode():
                    self.call(weight)
        self.assertEqual(made.call_count, 1)

    def test_changes_are_seen(self):
        for change in (
            lambda weight: weight.numpy()[3].fill(7),
            lambda weight: weight.data[0, 0].bitwise_xor_(1),
            lambda weight: weight.copy_(weight_codes(64, 128)),
            lambda weight: weight.set_(weight_codes(64, 128)),
        ):
            weight = weight_codes(64, 128)
            for _ in range(2):
                self.call(weight)
                change(weight)
                self.call(weight)
        with torch.inference_mode():
            weight = weight_codes(64, 128)
            self.call(weight)
            weight[0, 0] ^= 1
            self.call(weight)

    def test_reuse_asks_torch_alone(self):
        weight = weight_codes(64, 128)
        self.call(weight)
        with mock.patch.object(_packed_weights, "_fingerprint") as taken:
            taken.side_effect = AssertionError("a fingerprint was taken")
            with switchback.reuse_weight_codes():
                self.call(weight)
        with switchback.reuse_weight_codes():
            weight.add_(1)
            self.call(weight)
        self.assertEqual(self.held()[0], 1)

    def test_ends_with_the_weight(self):
        weights = [weight_codes(64, 128) for _ in range(3)]
        for weight in weights:
            self.call(weight)
        self.assertEqual(self.held()[0], 3)
        view = weights[0][:, :]
        del weights, weight
        gc.collect()
        self.assertEqual(self.held()[0], 1)  # the view keeps the memory of one weight
        del view
        gc.collect()
        self.assertEqual(self.held(), (0, 0))

    def test_bound(self):
        sizes = ops.PackedWeight(weight_codes(64, 128)).nbytes
        backend.register(packed_bytes=3 * sizes)
        weights = [weight_codes(64, 128) for _ in range(5)]
        for weight in weights + weights:
            self.call(weight)
            self.assertLessEqual(self.held()[1], 3 * sizes)
        self.assertEqual(self.held(), (3, 3 * sizes))
        backend.register(packed_bytes=sizes)
        self.assertEqual(self.held(), (1, sizes))
        backend.register(packed_bytes=0)
        self.call(weights[0])
        self.assertEqual(self.held(), (0, 0))

    def test_idle_forms_make_room(self):
        old, new = weight_codes(64, 128), weight_codes(64, 128)
        backend.register(packed_bytes=ops.PackedWeight(old).nbytes)
        self.call(old)
        with mock.patch.object(_packed_weights, "_IDLE", 2):
            for _ in range(5):
                self.call(new)
        with mock.patch.object(_packed_weights, "_Form", wraps=_packed_weights._Form) as made:
            self.call(new)
        self.assertEqual(made.call_count, 0)
        self.assertEqual(self.held()[0], 1)

    def test_swap_tensors(self):
        one, two = (torch.nn.Parameter(weight_codes(64, 128), requires_grad=False) for _ in range(2))
        self.call(one)
        self.call(two)
        torch.utils.swap_tensors(one, two)
        self.call(one)
        self.call(two)


class Tensors(Case):
    """ComfyUI's QuantizedTensor, torch's operators, and compiled and traced calls."""

    def setUp(self):
        super().setUp()
        self.x = torch.randn(5, 256).to(torch.bfloat16)
        self.bias = torch.randn(48).to(torch.bfloat16)

    def layer(self, **options):
        weight = torch.randn(48, 256).to(torch.bfloat16)
        quantized = QuantizedTensor.from_float(weight, LAYOUT, **options)
        layer = torch.nn.Linear(256, 48, dtype=torch.bfloat16)
        layer.weight = torch.nn.Parameter(quantized, requires_grad=False)
        layer.bias = torch.nn.Parameter(self.bias, requires_grad=False)
        return layer, quantized, weight

    def test_layer_and_merge(self):
        for group, options in (
            (0, {}),
            (0, {"per_channel": True}),
            (64, {"per_channel": True, "convrot": True, "convrot_groupsize": 64}),
        ):
            layer, quantized, weight = self.layer(**options)
            codes, scale = quantized._qdata, quantized._params.scale
            want = reference(self.x, codes, scale, self.bias, torch.bfloat16, group)
            with torch.no_grad():
                self.equal(layer(self.x), want)
                turned = quantized.t()
                self.equal(torch.addmm(self.bias, self.x, turned), want)
                plain = reference(self.x, codes, scale, None, torch.bfloat16, group)
                self.equal(self.x @ turned, plain)
                # Merges a LoRA like ComfyUI: dequantizes, adds, and quantizes with the same parameters.
                delta = (torch.randn(48, 2) @ torch.randn(2, 256) / 10).to(torch.bfloat16)
                float_weight = quantized.dequantize()
                self.assertGreater(snr(float_weight, weight.double()), 35)
                merged = quantized.requantize_from_float(float_weight + delta)
                self.assertGreater(snr(merged.dequantize(), (float_weight + delta).double()), 35)
                layer.weight = torch.nn.Parameter(merged, requires_grad=False)
                exact = self.x.double() @ (weight + delta).double().t() + self.bias.double()
                self.assertGreater(snr(layer(self.x), exact), 30)

    def test_compiled(self):
        layer, _, _ = self.layer(per_channel=True, convrot=True, convrot_groupsize=64)
        with torch.no_grad():
            compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
            for rows in (5, 7):
                x = torch.randn(rows, 256).to(torch.bfloat16)
                self.equal(compiled(x), layer(x))

    def test_fake_tensors(self):
        from torch._subclasses import FakeTensorMode

        codes, scale = run("quantize_int8_convrot_weight", torch.randn(48, 256), 64)
        wide = torch.randn(5, 512)
        for name, arguments in (
            ("int8_linear", (wide, codes, scale, None, torch.float16, True, 64, "swiglu")),
            ("int8_linear", (self.x, codes, scale, self.bias, torch.float32)),
            ("int8_linear_modulated", (self.x, self.x[0], codes, scale)),
            ("quantize_int8_rowwise", (self.x,)),
            ("quantize_int8_tensorwise", (self.x,)),
            ("quantize_int8_tensorwise", (self.x, 0.5)),
            ("quantize_int8_convrot_weight", (self.x, 64)),
            ("rotate_int8_convrot_weight", (self.x, 64)),
            ("dequantize_int8_simple", (codes, scale)),
            ("dequantize_int8_simple_dtype", (codes, scale, 2)),
            ("dequantize_int8_convrot_weight", (codes, scale, 64)),
            ("dequantize_int8_convrot_weight_dtype", (codes, scale, 64, 1)),
            ("mm_int8", (codes, codes.t())),
        ):
            with FakeTensorMode() as mode:
                faked = [
                    mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments
                ]
                made = run(name, *faked)
            real = run(name, *arguments)
            for fake, want in zip(*((t,) if isinstance(t, torch.Tensor) else t for t in (made, real))):
                self.assertEqual((fake.shape, fake.dtype), (want.shape, want.dtype), name)


if __name__ == "__main__":
    unittest.main()
