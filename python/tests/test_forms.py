# SPDX-License-Identifier: Apache-2.0
"""Linear layers in other forms: transformers' Conv1D, and nn.MultiheadAttention; and weights that modules
share."""

import copy
import dataclasses
import pickle
import unittest
import warnings

from support import relative_error, require_torch, torch_at_least

torch = require_torch()

from look_alikes import Conv1D  # noqa: E402
from torch import nn  # noqa: E402

from switchback import nn as sb  # noqa: E402
from switchback._tensors import HAS_OPERATORS  # noqa: E402


def conv_classes():
    found = [Conv1D]
    try:
        from transformers.pytorch_utils import Conv1D as Original

        found.append(Original)
    except ImportError:
        pass
    return found


class Conv(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(2, 3, 12)

    def replaced(self, kind, layer=sb.SwitchBackLinearVectorwise, **options):
        model = nn.Sequential(kind(20, 12), nn.GELU())
        weight = model[0].weight
        names = []
        sb.replace_linear(model, layer, replaced=names, **options)
        self.assertEqual(names, ["0"])
        self.assertIsInstance(model[0], kind)
        self.assertIs(model[0].weight, weight)
        return model[0]

    def test_every_option_is_taken_over(self):
        # The library cannot rotate a weight [in, out] in place, so with a rotation the layer gives it a copy.
        rotated = {"mode": "rowwise", "rotation": 16, "dw": "int8_block", "dw_block_rows": 128}
        stochastic = {"mode": "global", "dw": "int8_block", "rounding": "stochastic", "seed": 7}
        for options in (rotated, stochastic, {**stochastic, "mode": "rowwise_shared"}):
            with self.subTest(options):
                self.take_over(options)

    def take_over(self, options):
        conv = sb.replace_linear(Conv1D(20, 32), **options)
        twin = sb.SwitchBackLinear(32, 20, **options)
        self.assertEqual(conv._options(), dataclasses.replace(twin._options(), transposed=1))
        twin.load_state_dict({"weight": conv.weight.t(), "bias": conv.bias})
        grads = []
        for module in (conv, twin):
            x = torch.randn(5, 32, generator=torch.Generator().manual_seed(0)).requires_grad_()
            y = module(x)
            y.square().sum().backward()
            grads.append((y, x.grad))
        for got, want in zip(*grads):
            self.assertTrue(torch.equal(got, want))
        # The three roundings of dW are made in another order.
        want = twin.weight.grad
        bound = 6 * 2.0**-24 * want.abs()
        self.assertTrue(bool(((conv.weight.grad.t() - want).abs() <= bound).all()))

    def test_it_is_the_linear_layer_with_the_transposed_weight(self):
        for kind in conv_classes():
            for layer in (
                sb.SwitchBackLinear,
                sb.SwitchBackLinearVectorwise,
                sb.SwitchBackLinearGlobalMemEfficient,
                sb.StandardLinear,
            ):
                conv = self.replaced(kind, layer)
                twin = layer(12, 20)
                twin.load_state_dict({"weight": conv.weight.t(), "bias": conv.bias})
                ys, grads = [], []
                for module in (conv, twin):
                    x = self.x.clone().requires_grad_()
                    y = module(x)
                    y.square().sum().backward()
                    ys.append(y)
                    grads.append((x.grad, module.weight.grad, module.bias.grad))
                self.assertEqual(grads[0][1].stride(), conv.weight.stride())
                bits = layer is not sb.StandardLinear
                self.assert_same(ys[0], ys[1], bits)
                self.assert_same(grads[0][0], grads[1][0], bits)
                self.assert_same(grads[0][1], grads[1][1].t(), False)
                self.assert_same(grads[0][2], grads[1][2], True)

    def assert_same(self, got, want, bits):
        """Asserts the same bits, or a bound for floating sums of at most 20 products in two orders, 40
        roundings.

        The largest sum is more than a 20th of the magnitudes of its products.
        """
        if bits:
            self.assertTrue(torch.equal(got, want))
        else:
            bound = 40 * 2.0**-24 * 20 * float(want.detach().abs().max())
            self.assertLessEqual(float((got - want).detach().abs().max()), bound)

    def test_checkpoints_and_optimizers(self):
        old = Conv1D(20, 12)
        optimizer = torch.optim.SGD(old.parameters(), 0.1)
        new = sb.replace_linear(copy.deepcopy(old))
        new.load_state_dict(old.state_dict())
        self.assertEqual(list(new.state_dict()), list(old.state_dict()))
        replaced = sb.replace_linear(old)
        y = replaced(self.x)
        y.sum().backward()
        optimizer.step()
        self.assertFalse(torch.equal(replaced(self.x), y))
        for again in (copy.deepcopy(replaced), pickle.loads(pickle.dumps(replaced))):
            self.assertIs(type(again), type(replaced))
            self.assertTrue(torch.equal(again(self.x), replaced(self.x)))
        self.assertIn("mode=global", repr(replaced))
        self.assertIn("nf=20", repr(replaced))

    def test_prepared(self):
        conv = self.replaced(Conv1D)
        y = conv(self.x)
        conv.prepare_for_eval()
        self.assertEqual(tuple(conv.W_int8.shape), (20, 12))
        self.assertNotIn("weight", dict(conv.named_parameters()))
        with torch.no_grad():
            self.assertTrue(torch.equal(conv(self.x), y))
        other = sb.replace_linear(Conv1D(20, 12), sb.SwitchBackLinearVectorwise)
        floats = other.state_dict()
        other.load_state_dict(conv.state_dict())
        with torch.no_grad():
            self.assertTrue(torch.equal(other(self.x), y))
        other.load_state_dict(floats)
        self.assertEqual(tuple(other.weight.shape), (12, 20))

    def test_changes_behind_autograd(self):
        conv = self.replaced(Conv1D).eval()
        with torch.no_grad():
            conv(self.x)
            conv(self.x)
            conv.weight.data.mul_(-0.5)
            twin = sb.SwitchBackLinearVectorwise(12, 20)
            twin.load_state_dict({"weight": conv.weight.t(), "bias": conv.bias})
            self.assertTrue(torch.equal(conv(self.x), twin(self.x)))

    def test_what_only_has_the_name_stays(self):
        class Conv1D(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(3, 3))

        model = nn.Sequential(Conv1D(), nn.Conv1d(2, 2, 1))
        kinds = [type(m) for m in model]
        self.assertEqual([type(m) for m in sb.replace_linear(model)], kinds)


class Warnings(unittest.TestCase):
    def words(self, model, *arguments, **options):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            sb.replace_linear(model, *arguments, **options)
        return [str(w.message) for w in caught if w.category is UserWarning]

    def test_what_was_left_alone_is_named(self):
        class Special(nn.Linear):
            pass

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some versions of torch warn of Lazy modules
            lazy = nn.LazyLinear(4)
        model = nn.ModuleDict(
            {
                "plain": nn.Linear(4, 4),
                "special": Special(4, 4),
                "lazy": lazy,
                "attention": nn.MultiheadAttention(4, 2),
                "done": sb.SwitchBackLinear(4, 4),
            }
        )
        (words,) = self.words(copy.deepcopy(model))
        for part in ("'special' (Special)", "'lazy' (LazyLinear)", "'attention' (Multihead"):
            self.assertIn(part, words)
        for part in ("plain", "done", "out_proj"):
            self.assertNotIn(part, words)
        (words,) = self.words(copy.deepcopy(model), exclude=["special", "lazy"])
        self.assertNotIn("special", words)
        self.assertIn("attention=True", words)
        quiet = self.words(copy.deepcopy(model), exclude=["special", "lazy"], attention=True)
        self.assertEqual(quiet, [])

    def test_nothing_to_say(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Conv1d(4, 4, 1), nn.LayerNorm(4))
        self.assertEqual(self.words(model), [])
        self.assertEqual(self.words(model), [])  # twice

    def test_a_layer_that_is_no_switchback_layer(self):
        model = nn.Sequential(Conv1D(4, 4))
        (words,) = self.words(model, nn.Linear)
        self.assertIn("Conv1D needs a layer that is a SwitchBackLinear", words)
        self.assertIs(type(model[0]), Conv1D)


class Attention(unittest.TestCase):
    E, H = 24, 3

    def setUp(self):
        torch.manual_seed(0)

    def both(self, layer, **options):
        old = nn.MultiheadAttention(self.E, self.H, **options)
        for name, parameter in old.named_parameters():
            if "bias" in name:  # torch initialises these with zeros
                nn.init.normal_(parameter)
        names = []
        new = sb.replace_linear(copy.deepcopy(old), layer, attention=True, replaced=names)
        self.assertEqual(names, [""])
        self.assertIsInstance(new, sb.SwitchBackMultiheadAttention)
        self.assertEqual(list(new.state_dict()), list(old.state_dict()))
        return old, new

    def test_options_that_its_projections_lack(self):
        for options, words in (({"rotation": 16}, "rotation = 16"), ({"dw": "int8_block"}, "int8_block")):
            model = nn.Sequential(nn.MultiheadAttention(32, 2), nn.Linear(32, 32))
            with self.assertRaisesRegex(ValueError, f"attention = True.*{words}"):
                sb.replace_linear(model, mode="rowwise", attention=True, **options)
            self.assertIs(type(model[1]), nn.Linear)

    def compare(self, old, new, inputs, tolerance, **arguments):
        results = []
        for module in (old, new):
            module.zero_grad()
            given = [x.clone().requires_grad_() for x in inputs]
            if len(given) == 1:
                given = given * 3
            y, weights = module(*given, **arguments)
            (y * torch.linspace(-1, 1, self.E)).sum().backward()
            gradients = [x.grad for x in given] + [p.grad for p in module.parameters()]
            results.append([y, weights, *gradients])
        for got, want in zip(results[1], results[0]):
            self.assertEqual(got is None, want is None)
            if want is not None:
                self.assertEqual(got.shape, want.shape)
                error = float((got - want).detach().abs().max())
                # The error relative to the result, or to 1 where the exact gradient is zero (as for k's
                # bias).
                scale = max(1.0, float(want.detach().abs().max()))
                self.assertLess(error / scale, tolerance)

    def test_it_is_nn_multihead_attention(self):
        causal = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
        padding = torch.zeros(2, 5, dtype=torch.bool)
        padding[1, 3:] = True
        x = torch.randn(5, 2, self.E)
        batch_first = x.transpose(0, 1).contiguous()
        memory = torch.randn(7, 2, self.E)
        cases = [
            ({}, [x], {}),
            ({}, [x], {"need_weights": False}),
            ({"batch_first": True}, [batch_first], {"attn_mask": causal}),
            ({"batch_first": True}, [batch_first], {"key_padding_mask": padding}),
            ({}, [x], {"attn_mask": torch.randn(6, 5, 5), "key_padding_mask": padding}),
            ({}, [x], {"attn_mask": torch.randn(5, 5), "need_weights": False}),
            ({"bias": False}, [x], {}),
            ({}, [x, memory, torch.randn(7, 2, self.E)], {}),
            ({"add_bias_kv": True}, [x], {"attn_mask": causal}),
            ({"add_zero_attn": True, "add_bias_kv": True}, [x], {"key_padding_mask": padding}),
            ({}, [x], {"average_attn_weights": False}),
            ({}, [x[:, 0]], {}),
            ({}, [x[:, 0]], {"key_padding_mask": padding[1], "need_weights": False}),
            ({"kdim": 10, "vdim": 6}, [x, torch.randn(7, 2, 10), torch.randn(7, 2, 6)], {}),
        ]
        if torch_at_least(2, 0):
            cases.append(({}, [x], {"attn_mask": causal, "is_causal": True}))
        for options, inputs, arguments in cases:
            with self.subTest(options=options, arguments=list(arguments)):
                # In floating point only the order of sums differs: an error of 100 roundings of 2^-24.
                old, new = self.both(sb.StandardLinear, **options)
                self.compare(old, new, inputs, 1e-5, **arguments)
                # Each of two int8 products has an error of up to 2 % of its largest element here. The
                # softmax and the sums after it do not make that more than 10 %.
                old, new = self.both(sb.SwitchBackLinearVectorwise, **options)
                self.compare(old, new, inputs, 0.1, **arguments)

    def test_one_memory_for_keys_and_values(self):
        old, new = self.both(sb.StandardLinear)
        x, memory = torch.randn(5, 2, self.E), torch.randn(7, 2, self.E)
        got, want = new(x, memory, memory)[0], old(x, memory, memory)[0]
        # As above.
        self.assertLess(relative_error(got, want), 1e-5)
        self.assertEqual(sorted(new._sets), ["kv", "q"])

    def test_causal_needs_a_mask(self):
        _, new = self.both(sb.SwitchBackLinear)
        x = torch.randn(5, 2, self.E)
        with self.assertRaisesRegex(RuntimeError, "attn_mask"):
            new(x, x, x, is_causal=True)

    def test_dropout_is_for_training(self):
        _, new = self.both(sb.SwitchBackLinear, dropout=0.5)
        x = torch.randn(5, 2, self.E)
        for need_weights in (True, False):
            run = lambda n=need_weights: new(x, x, x, need_weights=n)[0]  # noqa: E731
            new.train()
            self.assertFalse(torch.equal(run(), run()))
            new.eval()
            self.assertTrue(torch.equal(run(), run()))

    def test_training_and_copies(self):
        _, new = self.both(sb.SwitchBackLinearVectorwise)
        x = torch.randn(5, 2, self.E)
        optimizer = torch.optim.SGD(new.parameters(), 0.05)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = (new(x, x, x)[0] - x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        self.assertLess(losses[-1], losses[0])
        for again in (copy.deepcopy(new), pickle.loads(pickle.dumps(new))):
            self.assertTrue(torch.equal(again(x, x, x)[0], new(x, x, x)[0]))
        new.eval()
        with torch.no_grad():
            new(x, x, x)
            new.in_proj_weight.data.mul_(0.5)
            self.assertTrue(torch.equal(new(x, x, x)[0], copy.deepcopy(new)(x, x, x)[0]))

    @unittest.skipUnless(torch_at_least(2, 1), "torch.compile needs torch 2.1")
    def test_compiled(self):
        _, new = self.both(sb.SwitchBackLinearVectorwise)
        x = torch.randn(5, 2, self.E)
        compiled = torch.compile(new, backend="eager")
        self.assertTrue(torch.equal(compiled(x, x, x)[0], new(x, x, x)[0]))

    def test_in_an_encoder_layer(self):
        layer = nn.TransformerEncoderLayer(self.E, self.H, 48, dropout=0.0, batch_first=True)
        x = torch.randn(2, 5, self.E)
        want = layer(x)
        sb.replace_linear(layer, sb.SwitchBackLinearVectorwise, attention=True)
        # The int8 errors of four products, each about 1 %, of values that are normalised to size 1.
        self.assertLess(relative_error(layer(x), want), 0.05)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 12)
        self.body = nn.Linear(12, 12)
        self.again = nn.Linear(12, 12, bias=False)
        self.head = nn.Linear(12, 50, bias=False)
        self.head.weight = self.embedding.weight
        self.again.weight = self.body.weight

    def forward(self, tokens):
        return self.head(self.again(self.body(self.embedding(tokens))))


def saved_bytes(model):
    kept = {t.data_ptr(): t.numel() * t.element_size() for t in model.state_dict().values()}
    return sum(kept.values())


class Ties(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.model = sb.replace_linear(Tied(), sb.SwitchBackLinearVectorwise).eval()
        self.tokens = torch.arange(10)

    def test_prepared(self):
        model = self.model
        floats = copy.deepcopy(model.state_dict())
        with torch.no_grad():
            want = model(self.tokens)
            size = saved_bytes(model)
            self.assertIs(sb.prepare_for_eval(model), model)
            self.assertTrue(torch.equal(model(self.tokens), want))
            sb.prepare_for_eval(model)  # twice
            self.assertTrue(torch.equal(model(self.tokens), want))
        self.assertTrue(all(m.is_prepared for m in (model.head, model.body, model.again)))
        self.assertIs(model.head.weight, model.embedding.weight)
        self.assertIs(model.body.W_int8, model.again.W_int8)
        self.assertIs(model.body.state_W, model.again.state_W)
        self.assertLess(saved_bytes(model), size)
        self.assertNotIn("head.W_int8", model.state_dict())
        self.assertIn("head.weight", model.state_dict())

        fresh = sb.replace_linear(Tied(), sb.SwitchBackLinearVectorwise).eval()
        fresh.load_state_dict(model.state_dict())
        with torch.no_grad():
            self.assertTrue(torch.equal(fresh(self.tokens), want))
        model.load_state_dict(floats)
        self.assertFalse(model.head.is_prepared)
        self.assertIs(model.head.weight, model.embedding.weight)
        with torch.no_grad():
            self.assertTrue(torch.equal(model(self.tokens), want))

    def test_codes_given_to_a_tied_head(self):
        sb.prepare_for_eval(self.model)
        with torch.no_grad():
            want = self.model(self.tokens)
        head = copy.deepcopy(self.model.head)
        head.load_state_dict({"W_int8": head.W_int8, "state_W": head.state_W})
        self.assertNotIn("weight", dict(head.named_parameters()))
        self.model.head = head
        with torch.no_grad():
            self.assertTrue(torch.equal(self.model(self.tokens), want))


class Transforms(unittest.TestCase):
    """Transforms of torch that layers do not support raise an error that names what is supported."""

    def setUp(self):
        self.layer = sb.SwitchBackLinear(4, 4)
        self.x = torch.randn(2, 4)

    def check(self, words, call):
        with self.assertRaises(RuntimeError) as caught:
            call()
        for word in ("switchback", words):
            self.assertIn(word, str(caught.exception))

    @unittest.skipUnless(torch_at_least(2, 0), "torch.func is of torch 2")
    def test_func(self):
        layer, x = self.layer, self.x
        named = dict(layer.named_parameters())

        def loss(parameters):
            return torch.func.functional_call(layer, parameters, (x,)).sum()

        self.assertEqual(loss(named).shape, ())  # functional_call alone is not a transform
        frozen = sb.SwitchBackLinear(4, 4).requires_grad_(False)
        batched = (
            lambda: torch.func.vmap(layer)(x),
            lambda: torch.func.vmap(frozen)(x),
            lambda: torch.func.vmap(sb.SwitchBackLinear(4, 4).prepare_for_eval())(x),
        )
        for call in (
            lambda: torch.func.grad(loss)(named),
            lambda: torch.func.jacrev(layer)(x),
            lambda: torch.func.jvp(layer, (x,), (x,)),
            *(() if HAS_OPERATORS else batched),  # test_operators.py tests vmap
        ):
            self.check("torch.func", call)

    def test_forward_mode(self):
        for layer in (self.layer, sb.SwitchBackLinear(4, 4).prepare_for_eval()):
            with torch.autograd.forward_ad.dual_level(), torch.no_grad():
                x = torch.autograd.forward_ad.make_dual(self.x, self.x)
                self.check("forward mode", lambda m=layer, t=x: m(t))
                self.assertEqual(layer(self.x).shape, (2, 4))

    def test_jit_script(self):
        for model in (self.layer, nn.Sequential(nn.Linear(4, 4), self.layer)):
            with self.assertRaisesRegex(RuntimeError, "SwitchBackLinear.*nn.Linear"):
                torch.jit.script(model)


if __name__ == "__main__":
    unittest.main()
