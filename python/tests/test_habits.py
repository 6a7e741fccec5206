# SPDX-License-Identifier: Apache-2.0
"""Common uses of models with nn.Linear, with switchback layers: tracing, second derivatives, torch's
encoders."""

import copy
import pickle
import unittest
import warnings
from unittest import mock

from look_alikes import Conv1D
from support import relative_error, require_torch, torch_at_least

torch = require_torch()

import switchback  # noqa: E402
from switchback import nn as sb  # noqa: E402
from switchback import InvalidState  # noqa: E402
from switchback._tensors import HAS_OPERATORS  # noqa: E402
from torch import fx, nn  # noqa: E402
from torch.nn.utils import prune  # noqa: E402


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = sb.SwitchBackExperts(3, 16, 8)

    def forward(self, x):
        index = torch.arange(8).reshape(4, 2) % 3
        return self.experts(x, index, torch.full((4, 2), 0.5)) * 2


class Grouped(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = sb.SwitchBackGroupedLinear(2, 16, 8)

    def forward(self, x):
        return self.layer(x, torch.tensor([1, 4], dtype=torch.int32)) + 1


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        sb.replace_linear(self, sb.SwitchBackLinearVectorwise, attention=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0] + x


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
        yield Experts()
        yield Grouped()
        yield Attention()

    def test_layers_are_leaves_of_symbolic_trace(self):
        for model in self.models():
            with self.subTest(model=model):
                graph = fx.symbolic_trace(model)
                called = [n.target for n in graph.graph.nodes if n.op == "call_module"]
                first = next(name for name, _ in model.named_modules() if name)
                self.assertEqual(called[0], first)
                self.assertIs(graph.get_submodule(first), model.get_submodule(first))
                x = self.x if not isinstance(model, Attention) else self.x.reshape(2, 2, 16)
                self.assertTrue(torch.equal(graph(x), model(x)))
                for again in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
                    self.assertTrue(torch.equal(again(x), model(x)))

    def test_a_traced_model_trains(self):
        model = nn.Sequential(sb.SwitchBackLinear(16, 8), nn.ReLU(), sb.SwitchBackLinear(8, 3))
        graph = fx.symbolic_trace(copy.deepcopy(model))
        for one in (model, graph):
            one(self.x).square().sum().backward()
        for of_graph, of_model in zip(graph.parameters(), model.parameters()):
            self.assertTrue(torch.equal(of_graph.grad, of_model.grad))

    def test_fused_projections_are_leaves_too(self):
        model = nn.Sequential(nn.ModuleDict({n: nn.Linear(16, 8) for n in ("query", "key", "value")}))
        sb.fuse_qkv(sb.replace_linear(model, mode="rowwise"))

        class Sum(nn.Module):
            def __init__(self):
                super().__init__()
                self.of = model[0]

            def forward(self, x):
                return self.of["query"](x) + self.of["key"](x) * self.of["value"](x)

        whole = Sum()
        graph = fx.symbolic_trace(whole)
        called = [n.target for n in graph.graph.nodes if n.op == "call_module"]
        self.assertEqual(called, ["of.query", "of.key", "of.value"])
        self.assertTrue(torch.equal(graph(self.x), whole(self.x)))

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
        yield Grouped()
        yield Experts()
        yield nn.Sequential(nn.Linear(16, 16), sb.prepare_for_eval(linear(16, 8)), nn.Tanh())
        names = "query", "key", "value"
        three = nn.ModuleDict({name: nn.Linear(16, 8) for name in names})
        sb.fuse_qkv(sb.replace_linear(three, mode="rowwise"))
        yield lambda x: sum(three[name](x) for name in names)

    def refused(self, penalty):
        with self.assertRaisesRegex(InvalidState, self.MESSAGE):
            penalty.backward()

    def test_a_penalty_on_dx_of_a_sum(self):
        """For a sum of y, the gradient of y is a constant, but dx still depends on the weight."""
        for model in self.models():
            with self.subTest(model=model):
                (dx,) = torch.autograd.grad(model(self.x).sum(), self.x, create_graph=True)
                self.assertTrue(dx.requires_grad)
                (plain,) = torch.autograd.grad(model(self.x).sum(), self.x)
                self.assertTrue(torch.equal(dx, plain))
                self.refused(model(self.x).sum() + dx.square().sum())

    def test_a_penalty_on_dx_of_what_follows(self):
        for model in self.models():
            with self.subTest(model=model):
                (dx,) = torch.autograd.grad(
                    model(self.x).square().sum(), self.x, create_graph=True
                )
                self.refused(dx.square().sum())

    def test_a_penalty_on_the_gradients_of_parameters(self):
        layer = sb.SwitchBackLinear(16, 8)
        for name, of_y in (("weight", torch.sum), ("bias", lambda y: y.square().sum())):
            (found,) = torch.autograd.grad(
                of_y(layer(self.x)), getattr(layer, name), create_graph=True
            )
            self.refused(found.square().sum())

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

    def test_gradients_that_are_kept_with_their_graph_are_the_same(self):
        layer = sb.SwitchBackLinear(16, 8)
        layer(self.x).square().sum().backward()
        want = [t.grad.clone() for t in (self.x, layer.weight, layer.bias)]
        for t in (self.x, layer.weight, layer.bias):
            t.grad = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of the reference cycle that create_graph makes
            layer(self.x).square().sum().backward(create_graph=True)
        for t, grad in zip((self.x, layer.weight, layer.bias), want):
            self.assertTrue(torch.equal(t.grad, grad))
            t.grad = None

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


class Callers(unittest.TestCase):
    """Features of torch that nn.Linear supports: layers compute them, or refuse them by an error that names
    the layer."""

    def setUp(self):
        torch.manual_seed(0)
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

        utils, kinds = nn.utils, []
        kinds.append(lambda m: utils.parametrize.register_parametrization(m, "weight", Twice()))
        kinds.append(lambda m: prune.l1_unstructured(m, "weight", 0.5))
        kinds.append(utils.weight_norm)
        kinds.append(utils.parametrizations.orthogonal)
        kinds.append(utils.parametrizations.spectral_norm)
        if hasattr(utils.parametrizations, "weight_norm"):
            kinds.append(utils.parametrizations.weight_norm)
        for apply in kinds:
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
                self.same(got, torch.autograd.grad(want, parts, gradients))
                # Y must have the ragged dimension of x, so that it can be added.
                if layout is not torch.strided:
                    self.assertEqual((y + layer(x)).shape, y.shape)

    def same(self, got, want):
        for one, other in zip(got, want):
            self.assertTrue(torch.equal(one, other))


class Encoders(unittest.TestCase):
    """torch's encoder layers in eval mode, where their fast path reads the weights without calling the layers."""

    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(3, 5, 16)
        self.padding = torch.zeros(3, 5, dtype=torch.bool)
        self.padding[1, 3:] = self.padding[2, 4:] = True

    def plain(self, kind):
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        return (layer if kind == "layer" else nn.TransformerEncoder(layer, 2)).eval()

    def models(self):
        for kind in ("layer", "encoder"):
            for attention in (False, True):
                for prepared in (False, True):
                    model = self.plain(kind)
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # the attention that is not replaced
                        sb.replace_linear(model, sb.SwitchBackLinearVectorwise, attention=attention)
                    if prepared:
                        sb.prepare_for_eval(model)
                    yield model, (kind, attention, prepared)

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

    def test_near_what_was_replaced(self):
        for kind in ("layer", "encoder"):
            plain = self.plain(kind)
            model = sb.replace_linear(copy.deepcopy(plain), sb.SwitchBackLinear, attention=True)
            with torch.no_grad():
                error = relative_error(model(self.x), plain(self.x))
            self.assertLess(error, 0.05)
            self.assertGreater(error, 1e-4)  # an error of int8 codes: the fast path would have none

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
