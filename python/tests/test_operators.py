# SPDX-License-Identifier: Apache-2.0
"""The operators torch.ops.switchback: compiled, traced and exported layers have the bits of eager ones."""

import copy
import io
import itertools
import unittest
import weakref
from unittest import mock

from support import TensorCase, require_torch, results_of

torch = require_torch()

from look_alikes import Conv1D  # noqa: E402
from switchback import _tensors, ops  # noqa: E402
from switchback import nn as sb  # noqa: E402
from switchback.nn._conv1d import conv1d_like  # noqa: E402
from switchback.nn._layer import Layer  # noqa: E402
from torch import nn  # noqa: E402

KINDS = (
    sb.SwitchBackLinearGlobal,
    sb.SwitchBackLinearVectorwise,
    sb.SwitchBackLinearGlobalMemEfficient,
    sb.StandardLinear,
)


class Net(nn.Module):
    """A small model: switchback layers with a norm, an activation and a residual connection."""

    def __init__(self, kind):
        super().__init__()
        self.norm = nn.LayerNorm(24)
        self.up = kind(24, 40)
        self.down = kind(40, 24, bias=False)
        self.head = kind(24, 7)

    def forward(self, x):
        x = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return self.head(x)


def compile_whole(call, **options):
    return torch.compile(call, fullgraph=True, backend="aot_eager", **options)


@unittest.skipUnless(_tensors.HAS_OPERATORS, "torch.library.register_autograd is of torch 2.4")
class Operators(TensorCase):
    def setUp(self):
        super().setUp()
        torch._dynamo.reset()


class Compiled(Operators):
    def test_one_graph_and_the_same_bits(self):
        prepared = [sb.prepare_for_eval(Net(kind)) for kind in KINDS[:2]]
        for model, autocast in itertools.product([*map(Net, KINDS), *prepared], (False, True)):
            torch._dynamo.reset()  # it compiles one function only a few times
            compiled = compile_whole(model)
            x, g = torch.randn(3, 5, 24), torch.randn(3, 5, 7)
            for _ in range(2):
                with self.subTest(model=model), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                    eager = results_of(model, x, g)
                    self.identical(eager, results_of(model, x, g, compiled))
                    self.assertIs(eager[0].dtype, torch.bfloat16 if autocast else torch.float32)
                    self.assertIs(eager[2].dtype, torch.float32)
                    with torch.no_grad():
                        self.identical([model(x)], [compiled(x)])
                with torch.no_grad():  # codes of the earlier weight must not be used
                    for parameter in model.parameters():
                        parameter.mul_(1.5)

    def test_changes_past_autograd_are_seen(self):
        model = sb.SwitchBackLinearVectorwise(24, 8).eval()
        compiled = compile_whole(model)
        x = torch.randn(3, 24)
        with torch.no_grad():
            for _ in range(3):
                compiled(x)
            model.weight.data.normal_()
            self.identical([copy.deepcopy(model)(x)], [compiled(x)])
            with sb.reuse_weight_codes():
                compiled(x)
                model.weight.data.normal_()
                model.weight_updated()
                self.identical([copy.deepcopy(model)(x)], [compiled(x)])

    def test_dynamic_shapes_compile_once(self):
        model = Net(sb.SwitchBackLinearVectorwise)
        compiled = compile_whole(model, dynamic=True)
        counter = torch._dynamo.testing.CompileCounter()
        counted = torch.compile(model, fullgraph=True, dynamic=True, backend=counter)
        for rows in (2, 3, 9, 17):
            x, g = torch.randn(rows, 3, 24), torch.randn(rows, 3, 7)
            self.identical(results_of(model, x, g), results_of(model, x, g, compiled))
            counted(x)
        self.assertEqual(counter.frame_count, 1)

    def test_inductor(self):
        model = Net(sb.SwitchBackLinearGlobal)
        compiled = torch.compile(model.up, fullgraph=True)
        x, g = torch.randn(3, 24), torch.randn(3, 40)
        try:
            results = results_of(model.up, x, g, compiled)
        except torch._inductor.exc.InductorError as error:
            self.skipTest(f"inductor finds no compiler: {str(error).splitlines()[0]}")
        self.identical(results_of(model.up, x, g), results)

    def test_frozen_parts(self):
        for frozen in ("up.weight", "up.bias", "head.weight"):
            model = Net(sb.SwitchBackLinearGlobalMemEfficient)
            model.get_parameter(frozen).requires_grad_(False)
            x, parameters = torch.randn(4, 24), [p for p in model.parameters() if p.requires_grad]
            results = (
                torch.autograd.grad(run(x).square().sum(), parameters)
                for run in (model, compile_whole(model))
            )
            self.identical(*results)

    def test_attention_experts_fragments_and_perceptrons(self):
        attention = nn.Sequential(nn.MultiheadAttention(16, 2, batch_first=True))
        sb.replace_linear(attention, sb.SwitchBackLinearVectorwise, attention=True)
        fragmented = sb.FragmentedLinear(16, 8, fragments=4)
        x = torch.randn(2, 5, 16)
        index, weights = torch.rand(10, 4).topk(2).indices, torch.rand(10, 2)
        cases = (
            (attention[0], lambda m, x: m(x, x, x)[0]),
            (sb.SwitchBackExperts(4, 16, 24), lambda m, x: m(x, index, weights)),
            (fragmented, lambda m, x: m(x)),
            (copy.deepcopy(fragmented).eval().requires_grad_(False), lambda m, x: m(x)),
            (sb.SwitchBackMLP(16, 64), lambda m, x: m(x)),
        )
        for module, call in cases:
            with self.subTest(module=type(module).__name__, training=module.training):
                results = []
                for run in (call, compile_whole(call)):
                    module.zero_grad()
                    y = run(module, x)
                    if y.requires_grad:
                        y.square().sum().backward()
                    grads = [p.grad for p in module.parameters() if p.grad is not None]
                    results.append([y.detach(), *grads])
                self.identical(*results)

    def test_conv1d_keeps_its_codes(self):
        made = []
        init = Layer.__init__

        def counting(self, *arguments):
            made.append(1)
            init(self, *arguments)

        layer = conv1d_like(Conv1D(24, 16), sb.SwitchBackLinearVectorwise(1, 1, device="meta"))
        compiled = compile_whole(layer)
        x, g = torch.randn(3, 16), torch.randn(3, 24)
        with mock.patch.object(Layer, "__init__", counting):
            for _ in range(3):
                self.identical(results_of(layer, x, g), results_of(layer, x, g, compiled))
                with torch.no_grad():
                    self.identical([layer(x)], [compiled(x)])
                    layer.weight.mul_(1.5)
        self.assertLessEqual(len(made), 4)  # one layer each for eager and compiled, forward and backward

    def test_kernels(self):
        x, w = torch.randn(5, 16), torch.randn(7, 16)

        def product(x, w, bias):
            q, a = ops.quantize_rowwise(x)
            codes, b = ops.quantize_global(w)
            y = ops.gemm_dequantize(q, codes, a, b, bias)
            z = ops.dequantize_rowwise(q, a, torch.bfloat16)
            t, c = ops.quantize_columnwise_transpose(w)
            return y, ops.gemm_dequantize(q, t.t(), a, c[:7]), z, ops.gemm_s8s8s32(q, codes), t

        bias = torch.randn(7)
        self.identical(product(x, w, bias), compile_whole(product)(x, w, bias))
        given, g = x.clone().requires_grad_(), torch.randn(5, 16)
        gelu = compile_whole(lambda x: ops.activation_forward(x, "gelu_erf"))
        (dx,) = torch.autograd.grad(gelu(given), given, g)
        self.identical([ops.activation_backward(g, x, "gelu_erf")], [dx])
        rotated = compile_whole(lambda x: ops.rotate(x, 16))
        self.identical([ops.rotate(x, 16)], [rotated(x)])
        (dx,) = torch.autograd.grad(rotated(given), given, g)
        self.identical([ops.rotate(g, 16)], [dx])


class Checked(Operators):
    def test_opcheck(self):
        x, w, b = torch.randn(3, 5, 16), torch.randn(8, 16), torch.randn(8)
        trained = [t.clone().requires_grad_() for t in (x, w, b)]
        across = torch.randn(16, 8, requires_grad=True)
        codes, absmax = ops.quantize_rowwise(w)
        q, a = ops.quantize_rowwise(x[0])
        g = torch.randn(3, 5, 8)
        rows = x[0].clone().requires_grad_()
        weights = torch.randn(2, 8, 16)
        of_experts = weights.clone().requires_grad_()
        offs = torch.tensor([2, 5], dtype=torch.int32)
        index = torch.tensor([4, 0, 1, 1, 3])
        slots = torch.tensor([[1, -1], [2, 3], [-1, -1], [4, -1], [0, -1]], dtype=torch.int32)
        parts = torch.randn(4, 4), torch.randn(2, 16), torch.randn(8, 2)
        of_groups = "mode=rowwise_shared,activation=gelu_tanh,rotation=16,dw=int8_block"
        all_ops = torch.ops.switchback
        for options in ("mode=rowwise", "mode=global", "mode=standard"):
            for operands in ((x, w, b), (x, w, None), trained, (x, trained[1], b)):
                torch.library.opcheck(all_ops.linear, (*operands, options))
        back = torch.float32, torch.float32, "mode=rowwise"
        for op, arguments in (
            (all_ops.linear, (x, w.t(), b, "mode=rowwise,transposed=1")),
            (all_ops.linear, (trained[0], across, b, "mode=rowwise,transposed=1")),
            (all_ops.linear_codes, (x, across, None, "mode=global,transposed=1")),
            (all_ops.linear_codes, (x, w, b, "mode=rowwise")),
            (all_ops.linear_codes, (*trained, "mode=global")),
            (all_ops.linear_backward, (g, x, None, None, w, *back)),
            (all_ops.linear_backward, (g[0], None, q, a, None, torch.float32, None, back[2])),
            (all_ops.linear_prepared, (x, codes, absmax, b, "mode=rowwise")),
            (all_ops.linear_prepared, (trained[0], codes, absmax, b, "mode=rowwise")),
            (all_ops.linear_prepared_dx, (g, codes, absmax, "mode=rowwise")),
            (all_ops.grouped_linear, (x[0], weights, None, offs, None, None, "mode=rowwise")),
            (all_ops.grouped_linear, (rows, weights, None, offs, None, None, of_groups)),
            (all_ops.grouped_linear, (rows, of_experts, None, offs, index, slots, "mode=rowwise")),
            (all_ops.combine, (torch.randn(5, 8), slots, torch.rand(5, 2))),
            (all_ops.fragmented_linear, (x, trained[1], *parts, False, "mode=rowwise")),
            (all_ops.fragmented_linear, (x, w, *parts, True, "mode=rowwise")),
            (all_ops.quantize_rowwise, (w,)),
            (all_ops.quantize_columnwise_transpose, (w,)),
            (all_ops.quantize_global, (w,)),
            (all_ops.quantize_global_transpose, (w.bfloat16(),)),
            (all_ops.dequantize_rowwise, (codes, absmax, torch.float16)),
            (all_ops.rotate, (w.bfloat16(), 16)),
            (all_ops.rotate, (trained[1], 16)),
            (all_ops.gemm_s8s8s32, (q, codes)),
            (all_ops.gemm_dequantize, (q, codes, a, absmax, b, torch.bfloat16)),
            (all_ops.activation_forward, (trained[1], "gelu_tanh")),
            (all_ops.activation_backward, (w, w, "gelu_tanh")),
        ):
            with self.subTest(op=str(op)):
                torch.library.opcheck(op, arguments)

    def test_meta(self):
        layer = sb.SwitchBackLinear(16, 8, device="meta")
        y = layer(torch.randn(3, 16, device="meta"))
        self.assertEqual((y.shape, y.device.type), ((3, 8), "meta"))
        y.sum().backward()
        self.assertEqual(layer.weight.grad.shape, (8, 16))
        with self.assertRaisesRegex(ValueError, "in_features"):
            layer(torch.randn(3, 15, device="meta"))
        with self.assertRaisesRegex(ValueError, "meta"):
            sb.SwitchBackLinear(16, 8)(torch.randn(3, 16, device="meta"))

    def test_bad_arguments(self):
        x, w = torch.randn(3, 16), torch.randn(8, 16)
        linear = torch.ops.switchback.linear
        for words, arguments in (
            ("mode = 'other'", (x, w, None, "mode=other")),
            ("options = ''", (x, w, None, "")),
            ("in_features = 16", (x[:, :5], w, None, "mode=rowwise")),
            ("out_features", (x, w, torch.randn(7), "mode=rowwise")),
            ("float64", (x.double(), w, None, "mode=rowwise")),
            ("transposed = 2", (x, w, None, "mode=rowwise,transposed=2")),
            ("in_features = 8", (x, w, None, "mode=rowwise,transposed=1")),
        ):
            with self.assertRaisesRegex((ValueError, TypeError), words):
                linear(*arguments)

    def test_autocast_rule(self):
        x, w = torch.randn(3, 16), torch.randn(8, 16)
        with torch.autocast("cpu", torch.bfloat16):
            y = torch.ops.switchback.linear(x, w, None, "mode=rowwise")
        want = torch.ops.switchback.linear(x.bfloat16(), w, None, "mode=rowwise")
        self.identical([want], [y])

    def test_no_gradient_of_codes(self):
        w = torch.randn(8, 16, requires_grad=True)
        _, absmax = torch.ops.switchback.quantize_rowwise(w)
        with self.assertRaisesRegex(RuntimeError, "quantize_rowwise rounds"):
            absmax.sum().backward()

    def test_codes_go_with_their_weight(self):
        weight, x = nn.Parameter(torch.randn(8, 16)), torch.randn(3, 16)
        with torch.no_grad():
            y = torch.ops.switchback.linear(x, weight, None, "mode=rowwise")
        (layers,) = map(weakref.ref, weight._switchback_layers.values())
        self.assertGreater(layers().cached_bytes(), 0)
        file = io.BytesIO()
        torch.save([weight], file)
        file.seek(0)
        for twin in (copy.deepcopy(weight), *torch.load(file)):
            with torch.no_grad():
                again = torch.ops.switchback.linear(x, twin, None, "mode=rowwise")
            self.assertTrue(torch.equal(again, y))
        other = nn.Parameter(torch.randn(8, 16))
        vars(other).update(vars(weight))
        with torch.no_grad():
            torch.ops.switchback.linear(x, other, None, "mode=rowwise")
        self.assertNotIn(layers(), other._switchback_layers.values())
        del weight
        self.assertIsNone(layers())

    @unittest.skipUnless(hasattr(torch.__future__, "set_swap_module_params_on_conversion"), "no swap")
    def test_parameters_are_swapped(self):
        def eager(layer):
            for _ in range(3):  # three calls, so that each path to the library is used
                y = layer(x)
            return y

        def operator(layer):
            return torch.ops.switchback.linear(x, layer.weight, layer.bias, "mode=rowwise")

        def compiled(layer):
            return torch.compile(layer, backend="aot_eager")(x)

        swap = torch.__future__.set_swap_module_params_on_conversion
        self.addCleanup(swap, False)
        swap(True)
        for use, trains in itertools.product((eager, operator, compiled), (False, True)):
            layer = sb.SwitchBackLinear(16, 8, mode="rowwise").requires_grad_(trains)
            weight, x = layer.weight, torch.randn(4, 16)
            with self.subTest(use=use.__name__, trains=trains):
                y = use(layer)
                if trains:
                    y.sum().backward()
                del y
                layer.zero_grad()
                for dtype in (torch.bfloat16, torch.float32):
                    layer.to(dtype)
                    self.assertIs(layer.weight, weight)
                    x = x.to(dtype)
                    for new in (None, sb.SwitchBackLinear(16, 8, dtype=dtype)):
                        if new is not None:
                            layer.load_state_dict(new.state_dict())
                        twin = sb.SwitchBackLinear(16, 8, mode="rowwise", dtype=dtype)
                        twin.load_state_dict(layer.state_dict())
                        self.identical([twin(x)], [use(layer).detach()])


class Exported(Operators):
    def test_export(self):
        x = torch.randn(4, 24)
        for prepared, operator in ((False, "linear"), (True, "linear_prepared")):
            model = Net(sb.SwitchBackLinearVectorwise).eval()
            if prepared:
                sb.prepare_for_eval(model)
            for strict in (False, True):
                shapes = {"x": {0: torch.export.Dim("rows", min=2)}}
                program = torch.export.export(model, (x,), dynamic_shapes=shapes, strict=strict)
                called = [str(node.target) for node in program.graph.nodes]
                self.assertEqual(called.count(f"switchback.{operator}.default"), 3)
                file = io.BytesIO()
                torch.export.save(program, file)
                file.seek(0)
                for exported in (program, torch.export.load(file)):
                    for rows in (4, 9):
                        y = torch.randn(rows, 24)
                        with torch.no_grad():
                            self.identical([model(y)], [exported.module()(y)])

    def test_make_fx(self):
        from torch.fx.experimental.proxy_tensor import make_fx

        model = Net(sb.SwitchBackLinearGlobal).requires_grad_(False)
        x = torch.randn(4, 24)
        for mode in ("real", "fake", "symbolic"):
            traced = make_fx(model, tracing_mode=mode, _allow_non_fake_inputs=True)(x)
            self.assertIn("switchback.linear", traced.code)
            self.identical([model(x)], [traced(x)])


class Transformed(Operators):
    def test_vmap(self):
        for kind in KINDS[:2]:
            layer = kind(16, 8).requires_grad_(False)
            x = torch.randn(3, 4, 16)
            self.identical([layer(x)], [torch.func.vmap(layer)(x)])
            self.assertTrue(torch.equal(layer(x), torch.func.vmap(layer, 1, 1)(x)))
        stacked = torch.randn(3, 8, 16)
        call = torch.func.vmap(
            lambda w, x: torch.ops.switchback.linear(x, w, None, "mode=rowwise"), (0, None)
        )
        want = [torch.ops.switchback.linear(x[0], w, None, "mode=rowwise") for w in stacked]
        self.identical([torch.stack(want)], [call(stacked, x[0])])


if __name__ == "__main__":
    unittest.main()
