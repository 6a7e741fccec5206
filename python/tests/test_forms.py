# SPDX-License-Identifier: Apache-2.0
"""Linear layers in other forms: transformers' Conv1D, and nn.MultiheadAttention; and weights that modules
share."""

import copy
import dataclasses
import pickle
import unittest
import warnings

from support import TensorCase, relative_error, require_torch, results_of, torch_at_least

torch = require_torch()

from look_alikes import Conv1D  # noqa: E402
from torch import nn  # noqa: E402

from switchback import nn as sb  # noqa: E402


def conv_classes():
    found = [Conv1D]
    try:
        from transformers.pytorch_utils import Conv1D as Original

        found.append(Original)
    except ImportError:
        pass
    return found


class Conv(TensorCase):
    def test_it_is_the_linear_layer_with_the_transposed_weight(self):
        # The library cannot rotate a weight [in, out] in place, so with a rotation the layer gives it a copy.
        rotated = {"mode": "rowwise", "rotation": 16, "dw": "int8_block", "dw_block_rows": 128}
        stochastic = {"mode": "global", "dw": "int8_block", "rounding": "stochastic", "seed": 7}
        for options in (
            {},
            {"mode": "rowwise"},
            {"mode": "global", "mem_efficient": True},
            {"mode": "standard"},
            rotated,
            stochastic,
            {**stochastic, "mode": "rowwise_shared"},
        ):
            for kind in conv_classes():
                with self.subTest(kind=kind, **options):
                    self.compare_with_linear(sb.replace_linear(kind(20, 32), **options), options)

    def compare_with_linear(self, conv, options):
        self.assertIn("nf=20, nx=32", repr(conv))
        twin = sb.SwitchBackLinear(32, 20, **options)
        self.assertEqual(conv._options(), dataclasses.replace(twin._options(), transposed=1))
        twin.load_state_dict({"weight": conv.weight.t(), "bias": conv.bias})
        x, g = torch.randn(2, 3, 32), torch.randn(2, 3, 20)
        y, dx, dw, db = results_of(conv, x, g)
        want_y, want_dx, want_dw, want_db = results_of(twin, x, g)
        self.assertEqual(dw.stride(), conv.weight.stride())
        self.equal(db, want_db)
        if conv.mode == "standard":
            # Sums of at most 32 products in two orders, each with at most 32 roundings.
            self.assertLess(relative_error(y, want_y), 64 * 2.0**-24)
            self.assertLess(relative_error(dx, want_dx), 64 * 2.0**-24)
        else:
            self.equal([y, dx], [want_y, want_dx])
        # dW is a sum of 6 products in two orders; in int8 it has three roundings in two orders.
        self.assertLess(relative_error(dw.t(), want_dw), 12 * 2.0**-24)

    def test_prepared(self):
        conv = Conv1D(20, 12)
        model, weight, names, x = nn.Sequential(conv, nn.GELU()), conv.weight, [], torch.randn(2, 3, 12)
        sb.replace_linear(model, mode="rowwise", replaced=names)
        self.assertEqual(names, ["0"])
        conv = model[0]
        self.assertIsInstance(conv, Conv1D)
        self.assertIs(conv.weight, weight)
        y = conv(x)
        conv.prepare_for_eval()
        self.assertEqual(tuple(conv.W_int8.shape), (20, 12))
        self.assertNotIn("weight", dict(conv.named_parameters()))
        self.equal(conv(x), y)
        other = sb.replace_linear(Conv1D(20, 12), mode="rowwise")
        floats = other.state_dict()
        other.load_state_dict(conv.state_dict())
        self.equal(other(x), y)
        other.load_state_dict(floats)
        self.assertEqual(tuple(other.weight.shape), (12, 20))

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
        for _ in range(2):
            self.assertEqual(self.words(model), [])

    def test_a_layer_that_is_no_switchback_layer(self):
        model = nn.Sequential(Conv1D(4, 4))
        (words,) = self.words(model, nn.Linear)
        self.assertIn("Conv1D needs a layer that is a SwitchBackLinear", words)
        self.assertIs(type(model[0]), Conv1D)


class Attention(TensorCase):
    E, H = 24, 3

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

    def test_copies_and_changes(self):
        _, new = self.both(sb.SwitchBackLinearVectorwise)
        x = torch.randn(5, 2, self.E)
        for again in (copy.deepcopy(new), pickle.loads(pickle.dumps(new))):
            self.equal(again(x, x, x)[0], new(x, x, x)[0])
        with torch.no_grad():
            for module in (new, new.eval()):
                new(x, x, x)
                new.in_proj_weight.data.mul_(0.5)
                self.equal(module(x, x, x)[0], copy.deepcopy(new)(x, x, x)[0])


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


class Ties(TensorCase):
    def setUp(self):
        super().setUp()
        self.tokens = torch.arange(10)

    def tied(self, **options):
        return sb.replace_linear(Tied(), mode="rowwise", **options).eval()

    @torch.no_grad()
    def test_prepared(self):
        for rotation in (0, 4):
            model = self.tied(rotation=rotation)
            floats = copy.deepcopy(model.state_dict())
            want, size = model(self.tokens), saved_bytes(model)
            for _ in range(2):  # the second call does nothing
                self.assertIs(sb.prepare_for_eval(model), model)
                self.equal(model(self.tokens), want)
            self.assertTrue(all(m.is_prepared for m in (model.head, model.body, model.again)))
            self.assertIs(model.head.weight, model.embedding.weight)
            self.assertIs(model.body.W_int8, model.again.W_int8)
            self.assertIs(model.body.state_W, model.again.state_W)
            self.assertLess(saved_bytes(model), size)
            of_head = {key for key in model.state_dict() if key.startswith("head.")}
            self.assertEqual(of_head, {"head.weight"})

            fresh = self.tied(rotation=rotation)
            fresh.load_state_dict(model.state_dict())
            self.equal(fresh(self.tokens), want)
            model.load_state_dict(floats)
            self.assertFalse(model.head.is_prepared)
            self.assertIs(model.head.weight, model.embedding.weight)
            self.equal(model(self.tokens), want)

    def test_codes_given_to_a_tied_head(self):
        model = sb.prepare_for_eval(self.tied())
        want = model(self.tokens)
        head = copy.deepcopy(model.head)
        head.load_state_dict({"W_int8": head.W_int8, "state_W": head.state_W})
        self.assertNotIn("weight", dict(head.named_parameters()))
        model.head = head
        self.equal(model(self.tokens), want)


class Scripts(unittest.TestCase):
    def test_jit_script_is_refused(self):
        layer = sb.SwitchBackLinear(4, 4)
        for model in (layer, nn.Sequential(nn.Linear(4, 4), layer)):
            with self.assertRaisesRegex(RuntimeError, "SwitchBackLinear.*nn.Linear"):
                torch.jit.script(model)


if __name__ == "__main__":
    unittest.main()
