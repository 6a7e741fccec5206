# SPDX-License-Identifier: Apache-2.0
"""Common uses of models with nn.Linear, with switchback layers: tracing, second derivatives, torch's
encoders."""

import copy
import itertools
import pickle
import unittest
import warnings
from unittest import mock

from look_alikes import Conv1D
from support import TensorCase, relative_error, require_torch, torch_at_least

torch = require_torch()

import switchback  # noqa: E402
from switchback import nn as sb  # noqa: E402
from switchback import InvalidState  # noqa: E402
from switchback._tensors import HAS_OPERATORS  # noqa: E402
from torch import fx, nn  # noqa: E402
from torch.nn.utils import prune  # noqa: E402


class Around(nn.Module):
    """A model of one module, and of what is done with it."""

    def __init__(self, module, call):
        super().__init__()
        self.inner, self.call = module, call

    def forward(self, x):
        return self.call(self.inner, x)


def experts():
    index, weights = torch.arange(8).reshape(4, 2) % 3, torch.full((4, 2), 0.5)
    return Around(sb.SwitchBackExperts(3, 16, 8), lambda module, x: module(x, index, weights) * 2)


def grouped():
    ends = torch.tensor([1, 4], dtype=torch.int32)
    return Around(sb.SwitchBackGroupedLinear(2, 16, 8), lambda module, x: module(x, ends) + 1)


def attention():
    model = Around(
        nn.MultiheadAttention(16, 2, batch_first=True),
        lambda module, x: module(*[x.reshape(2, 2, 16)] * 3, need_weights=False)[0],
    )
    return sb.replace_linear(model, sb.SwitchBackLinearVectorwise, attention=True)


class Projections(nn.Module):
    """The projections of an attention, computed as one layer."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, 8) for _ in range(3))
        sb.fuse_qkv(sb.replace_linear(self, mode="rowwise"))

    def forward(self, x):
        return self.query(x) + self.key(x) * self.value(x)


def layer_of_codes():
    return sb.SwitchBackLinearVectorwise(16, 8).requires_grad_(False).prepare_for_eval()


class Traced(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(4, 16)

    def models(self):
        yield nn.Sequential(sb.SwitchBackLinear(16, 8), nn.ReLU())
        yield nn.Sequential(sb.SwitchBackLinearVectorwise(16, 8)).eval()
        yield sb.prepare_for_eval(nn.Sequential(sb.SwitchBackLinearVectorwise(16, 8)))
        yield sb.replace_linear(nn.Sequential(Conv1D(8, 16), nn.Tanh()))
        yield nn.Sequential(sb.SwitchBackMLP(16, 32, 8), nn.ReLU())
        yield nn.Sequential(sb.SwitchBackLinear(16, 8), sb.GELU())
        yield nn.Sequential(sb.FragmentedLinear(16, 8, 4))
        yield experts()
        yield grouped()
        yield attention()
        yield Projections()

    def test_layers_are_leaves_of_symbolic_trace(self):
        for model in self.models():
            with self.subTest(model=model):
                graph = fx.symbolic_trace(model)
                called = [n.target for n in graph.graph.nodes if n.op == "call_module"]
                self.assertEqual(called, [name for name, _ in model.named_children()])
                for name in called:
                    self.assertIs(graph.get_submodule(name), model.get_submodule(name))
                for traced in (graph, copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
                    self.assertTrue(torch.equal(traced(self.x), model(self.x)))

    def test_what_cannot_be_traced_says_what_to_do(self):
        layer = sb.SwitchBackLinear(16, 8)
        with self.assertRaisesRegex(
            NotImplementedError, "SwitchBackLinear must be a submodule.*nn.Sequential.*torch.export"
        ):
            fx.symbolic_trace(layer)
        model = nn.Sequential(layer)
        handle = layer.register_forward_hook(lambda _module, _given, y: y * 2)
        with self.assertRaisesRegex(NotImplementedError, "SwitchBackLinear has forward hooks"):
            fx.symbolic_trace(model)
        handle.remove()
        self.assertTrue(torch.equal(fx.symbolic_trace(model)(self.x), model(self.x)))


class Penalised(unittest.TestCase):
    """Second derivatives, which gradient penalties need, are refused and never silently left out."""

    MESSAGE = "switchback.* has no second derivative"

    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(4, 16, requires_grad=True)

    def models(self):
        linear = sb.SwitchBackLinearVectorwise
        yield linear(16, 8)
        yield linear(16, 8, bias=False)
        yield sb.SwitchBackLinear(16, 8)
        yield sb.SwitchBackLinearGlobalMemEfficient(16, 8)
        yield sb.StandardLinear(16, 8)
        yield sb.SwitchBackLinear(16, 8, mode="rowwise", dw="int8_block")
        yield sb.replace_linear(Conv1D(8, 16))
        yield sb.SwitchBackMLP(16, 32, 8)
        yield sb.GELU()
        yield sb.FragmentedLinear(16, 8, 4)
        yield grouped()
        yield experts()
        yield nn.Sequential(nn.Linear(16, 16), sb.prepare_for_eval(linear(16, 8)), nn.Tanh())
        yield Projections()

    def refused(self, penalty):
        with self.assertRaisesRegex(InvalidState, self.MESSAGE):
            penalty.backward(retain_graph=True)

    def test_a_penalty_on_dx_and_the_gradients_of_parameters(self):
        for model in self.models():
            with self.subTest(model=model):
                operands = [self.x, *(p for p in model.parameters() if p.requires_grad)]
                # For a sum of y, the gradient of y is a constant, but dx still depends on the weight.
                (dx,) = torch.autograd.grad(model(self.x).sum(), self.x, create_graph=True)
                self.refused(model(self.x).sum() + dx.square().sum())
                found, plain = (
                    torch.autograd.grad(model(self.x).square().sum(), operands, create_graph=graph)
                    for graph in (True, False)
                )
                for got, want in zip(found, plain):
                    # torch's silu, which experts use, is rounded differently with a graph.
                    if "Experts" not in repr(model):
                        self.assertTrue(torch.equal(got, want))
                    self.refused(got.square().sum())

    def test_what_depends_on_nothing_has_no_graph(self):
        """As with nn.Linear, a gradient that depends only on constants is a constant, without a graph."""
        for prepared in (False, True):
            layer = sb.SwitchBackLinearVectorwise(16, 8).requires_grad_(False)
            layer = sb.prepare_for_eval(layer) if prepared else layer
            (dx,) = torch.autograd.grad(layer(self.x).sum(), self.x, create_graph=True)
            self.assertFalse(dx.requires_grad)
        layer = sb.SwitchBackLinearVectorwise(16, 8)
        layer(self.x.detach()).sum().backward(create_graph=True)
        self.assertFalse(layer.weight.grad.requires_grad or layer.bias.grad.requires_grad)
        # An nn.Linear before a prepared layer still has a second derivative.
        front, back = nn.Linear(16, 16), layer_of_codes()
        (dx,) = torch.autograd.grad(back(front(self.x)).sum(), self.x, create_graph=True)
        dx.square().sum().backward()
        h = front(self.x).detach().requires_grad_()
        (g,) = torch.autograd.grad(back(h).sum(), h)
        weight = front.weight.detach().requires_grad_()
        (g @ weight).square().sum().backward()
        self.assertLess(relative_error(front.weight.grad, weight.grad), 1e-5)

    @unittest.skipUnless(torch_at_least(2, 4), "operators need torch 2.4")
    def test_operators(self):
        ops = torch.ops.switchback
        weight = torch.randn(8, 16, requires_grad=True)
        codes, absmax = switchback.quantize_rowwise(weight.detach())
        ends = torch.tensor([1, 4], dtype=torch.int32)
        of_groups = torch.randn(2, 8, 16, requires_grad=True)
        selector, down, up = (torch.randn(s, requires_grad=True) for s in ((4, 4), (2, 16), (8, 2)))
        rowwise = "mode=rowwise"
        for call in (
            lambda x: ops.linear(x, weight, None, rowwise),
            lambda x: ops.linear_codes(x, weight, None, rowwise)[0],
            lambda x: ops.linear_prepared(x, codes, absmax, None, rowwise).square(),
            lambda x: ops.grouped_linear(x, of_groups, None, ends, None, None, rowwise),
            lambda x: ops.fragmented_linear(x, weight, selector, down, up, False, rowwise),
            lambda x: ops.activation_forward(x, "gelu_erf"),
        ):
            (dx,) = torch.autograd.grad(call(self.x).sum(), self.x, create_graph=True)
            self.refused(dx.square().sum())

    @unittest.skipUnless(torch_at_least(2, 4), "operators need torch 2.4")
    def test_operators_that_have_one(self):
        slots = torch.tensor([[0, 2], [1, -1], [3, 4]], dtype=torch.int32)
        y = torch.randn(5, 4, requires_grad=True)
        weights = torch.rand(3, 2, requires_grad=True)

        def plain(y, slots, weights):
            rows = y[slots.clamp(min=0).long()] * (slots >= 0).unsqueeze(-1)
            return (rows * weights.unsqueeze(-1)).sum(1)

        found = []
        for call in (plain, torch.ops.switchback.combine):
            grads = torch.autograd.grad(
                call(y, slots, weights).square().sum(), (y, weights), create_graph=True
            )
            found.append(torch.autograd.grad(sum(g.square().sum() for g in grads), (y, weights)))
        for want, got in zip(*found):
            self.assertLess(relative_error(got, want), 1e-5)
        rotate = torch.ops.switchback.rotate
        (dx,) = torch.autograd.grad(rotate(self.x, 16).pow(3).sum(), self.x, create_graph=True)
        (got,) = torch.autograd.grad(dx.sum(), self.x)
        hadamard = rotate(torch.eye(16), 16)
        want = (6 * (self.x @ hadamard) * (torch.ones(4, 16) @ hadamard)) @ hadamard
        self.assertLess(relative_error(got, want), 1e-5)


NAMED = "in_features=16, out_features=8.*exclude"  # an error must name the layer, and what to do


class Callers(TensorCase):
    """Features of torch that nn.Linear supports: layers compute them, or refuse them by an error that names
    the layer."""

    def setUp(self):
        super().setUp()
        self.x = torch.randn(5, 16)

    def layers(self):
        yield sb.SwitchBackLinearVectorwise(16, 8)
        yield sb.SwitchBackLinearGlobal(16, 8, bias=False)
        yield sb.SwitchBackLinearVectorwise(16, 8).prepare_for_eval()

    @unittest.skipUnless(hasattr(torch, "func"), "this torch has no torch.func")
    def test_of_torch_func(self):
        for layer in self.layers():
            parameters = {name: p * 2 for name, p in layer.named_parameters()}
            twin = copy.deepcopy(layer)
            with torch.no_grad():
                for name, parameter in twin.named_parameters():
                    parameter.copy_(parameters[name])
            y = torch.func.functional_call(layer, parameters, (self.x,))
            self.assertTrue(torch.equal(y, twin(self.x)))
            for call in (
                lambda: torch.func.grad(lambda x: layer(x).sum())(self.x),
                lambda: torch.func.vjp(layer, self.x),
                lambda: torch.func.jvp(layer, (self.x,), (self.x,)),
                lambda: torch.func.jacrev(layer)(self.x),
                lambda: torch.func.linearize(layer, self.x),
            ):
                with self.assertRaisesRegex(switchback.Unsupported, NAMED):
                    call()
            if not HAS_OPERATORS:
                continue
            x, g = self.x.clone().requires_grad_(), torch.randn(3, 5, 8)
            operands = [x, *layer.parameters()]
            y = layer(x)
            got = torch.func.vmap(
                lambda g: torch.autograd.grad(y, operands, g, retain_graph=True)
            )(g)
            for place, each in enumerate(g):
                want = torch.autograd.grad(y, operands, each, retain_graph=True)
                for batch, one in zip(got, want):
                    self.assertTrue(torch.equal(batch[place], one))

    def test_of_autograd(self):
        functional, forward_ad = torch.autograd.functional, torch.autograd.forward_ad
        for layer in self.layers():
            x = self.x.clone().requires_grad_()
            jacobian = functional.jacobian(layer, self.x)
            for m, n in ((0, 0), (4, 7)):
                g = torch.zeros(5, 8)
                g[m, n] = 1
                (want,) = torch.autograd.grad(layer(x), x, g)
                self.assertTrue(torch.equal(jacobian[m, n], want))
            with self.assertRaisesRegex(switchback.Unsupported, "backward: .*vectorize=False.*exclude"):
                functional.jacobian(layer, self.x, vectorize=True)
            with self.assertRaisesRegex(switchback.Unsupported, NAMED), forward_ad.dual_level():
                layer(forward_ad.make_dual(self.x, self.x))
            (dx,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
            with self.assertRaisesRegex(InvalidState, "in_features=16, out_features=8"):
                dx.sum().backward()

    def test_of_utilities_for_weights(self):
        class Twice(nn.Module):
            def forward(self, weight):
                return weight * 2

        utils = nn.utils
        for apply in (
            lambda m: utils.parametrize.register_parametrization(m, "weight", Twice()),
            lambda m: prune.l1_unstructured(m, "weight", 0.5),
            utils.weight_norm,
            utils.parametrizations.spectral_norm,
        ):
            layer = sb.SwitchBackLinearVectorwise(16, 8).eval()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                apply(layer)
            twin = sb.SwitchBackLinearVectorwise(16, 8)
            y = layer(self.x)
            with torch.no_grad():
                twin.weight.copy_(layer.weight)
                twin.bias.copy_(layer.bias)
            self.assertTrue(torch.equal(y, twin(self.x)))
            y.sum().backward()
            self.assertTrue(all(p.grad is not None for p in layer.parameters()))
            with self.assertRaisesRegex(InvalidState, "prepare_for_eval: the weight is computed from other"):
                layer.prepare_for_eval()
            prepared = sb.SwitchBackLinearVectorwise(16, 8).prepare_for_eval()
            before = prepared(self.x)
            with warnings.catch_warnings(), self.assertRaisesRegex(InvalidState, NAMED):
                warnings.simplefilter("ignore")
                apply(prepared)
            self.assertTrue(torch.equal(prepared(self.x), before))
        for layer in self.layers():
            y = layer(self.x)
            vector = utils.parameters_to_vector(layer.parameters())
            utils.vector_to_parameters(vector * 2, layer.parameters())
            self.assertTrue(torch.equal(layer(self.x), copy.deepcopy(layer)(self.x)))
            self.assertFalse(torch.equal(layer(self.x), y) and len(vector))

    @unittest.skipUnless(hasattr(getattr(torch, "nested", None), "as_nested_tensor"), "no nested tensors")
    def test_of_nested_tensors(self):
        layouts = [torch.strided, *filter(None, [getattr(torch, "jagged", None)])]
        for layer in self.layers():
            for layout in layouts:
                parts = [torch.randn(rows, 16, requires_grad=True) for rows in (3, 1, 4)]
                options = {} if layout is torch.strided else {"layout": layout}
                x = torch.nested.as_nested_tensor(parts, **options)
                y = layer(x)
                self.assertIs(y.layout, layout)
                self.assertTrue(y.is_nested)
                want = [layer(part) for part in parts]
                gradients = [torch.randn_like(part) for part in want]
                for one, part in zip(y.unbind(), want):
                    self.assertTrue(torch.equal(one, part))
                loss = sum((one * g).sum() for one, g in zip(y.unbind(), gradients))
                got = torch.autograd.grad(loss, parts)
                self.equal(got, torch.autograd.grad(want, parts, gradients))
                # Y must have the ragged dimension of x, so that it can be added.
                if layout is not torch.strided:
                    self.assertEqual((y + layer(x)).shape, y.shape)


class Encoders(unittest.TestCase):
    """torch's encoder layers in eval mode, where a fast path reads the weights without calling the layers."""

    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(3, 5, 16)
        self.padding = torch.zeros(3, 5, dtype=torch.bool)
        self.padding[1, 3:] = self.padding[2, 4:] = True

    def plain(self, kind):
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        return (layer if kind == "layer" else nn.TransformerEncoder(layer, 2)).eval()

    def models(self):
        for which in itertools.product(("layer", "encoder"), (False, True), (False, True)):
            kind, attention, prepared = which
            model = self.plain(kind)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the attention that is not replaced
                sb.replace_linear(model, sb.SwitchBackLinearVectorwise, attention=attention)
            yield sb.prepare_for_eval(model) if prepared else model, which

    def calls(self, model):
        """The number of calls of the encoder layers' feed-forward layers in one forward."""
        layers = [m for m in model.modules() if isinstance(m, nn.TransformerEncoderLayer)]
        linear = type(layers[0].linear1)
        called = []

        def counted(module, x):
            called.append(module)
            return forward(module, x)

        forward = linear.forward
        with mock.patch.object(linear, "forward", counted):
            model(self.x)
        return sum(m in (layer.linear1, layer.linear2) for m in called for layer in layers)

    def test_results_are_those_of_the_layers(self):
        for model, which in self.models():
            with self.subTest(which=which):
                count = 2 if which[0] == "layer" else 4
                want = model(self.x)  # with autograd on, torch does not use its fast path
                with torch.no_grad():
                    fast = model(self.x)
                    self.assertEqual(self.calls(model), count)
                if which[1]:
                    self.assertTrue(torch.equal(fast, want))
                else:  # nn.MultiheadAttention uses its own fast path; codes may then differ by one
                    self.assertLess(relative_error(fast, want), 0.02)
                want = fast
                with torch.inference_mode():
                    self.assertTrue(torch.equal(model(self.x), want))
                model.requires_grad_(False)
                self.assertEqual(self.calls(model), count)
                self.assertTrue(torch.equal(model(self.x), want))
                for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
                    self.assertTrue(torch.equal(again(self.x), want))

    def test_padding_and_autocast(self):
        for model, which in self.models():
            with self.subTest(which=which), torch.no_grad():
                key = "src_key_padding_mask"
                y = model(self.x, **{key: self.padding})
                for row, length in ((0, 5), (1, 3), (2, 4)):
                    alone = model(self.x[row : row + 1, :length])
                    # Sums of other lengths are rounded differently, and then codes may differ by one.
                    self.assertLess(relative_error(y[row, :length], alone[0]), 0.02)
                if not (which[1] or torch_at_least(2, 0)):
                    continue  # torch 1.13's nn.MultiheadAttention fails under autocast in eval mode
                want = model(self.x)
                with torch.autocast("cpu", torch.bfloat16):
                    self.assertLess(relative_error(model(self.x), want), 0.05)

    def test_other_encoders_keep_their_fast_path(self):
        model = nn.Sequential(self.plain("layer"), nn.Linear(16, 4))
        sb.replace_linear(model, include="1")
        self.assertTrue(model[0].activation_relu_or_gelu)

    def test_layers_that_were_put_there_by_hand(self):
        layer = self.plain("layer")
        layer.linear1, layer.linear2 = sb.SwitchBackLinear(16, 32), sb.SwitchBackLinear(32, 16)
        sb.prepare_for_eval(layer.eval())
        with torch.no_grad():
            self.assertEqual(self.calls(layer), 2)


if __name__ == "__main__":
    unittest.main()
