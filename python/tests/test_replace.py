# SPDX-License-Identifier: Apache-2.0
"""The function replace_linear."""

import functools
import unittest
import warnings

from support import require_torch

torch = require_torch()

from torch import nn  # noqa: E402
from torch.nn.utils import prune  # noqa: E402

from switchback import nn as sb  # noqa: E402


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.attention = nn.MultiheadAttention(8, 2)
        self.head = nn.Linear(8, 3)
        self.tied = self.head

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x) + self.tied(x)


class Replace(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.model = Model()
        self.x = torch.randn(4, 8)

    def names(self, **options):
        replaced = []
        model = Model()
        self.assertIs(sb.replace_linear(model, replaced=replaced, **options), model)
        kinds = [n for n, m in model.named_modules() if isinstance(m, sb.SwitchBackLinear)]
        self.assertEqual(kinds, replaced)
        return replaced

    def test_which(self):
        every = ["blocks.0.up", "blocks.0.down", "blocks.1.up", "blocks.1.down", "head"]
        self.assertEqual(self.names(), every)
        self.assertEqual(self.names(exclude="head"), every[:-1])
        self.assertEqual(self.names(include="blocks.*.up"), [every[0], every[2]])
        self.assertEqual(
            self.names(include=["blocks.*", "head"], exclude=["*.down"]),
            [every[0], every[2], "head"],
        )
        self.assertEqual(
            self.names(include=lambda name, module: module.bias is None), [every[1], every[3]]
        )
        self.assertEqual(self.names(include=[]), [])
        self.assertEqual(self.names(exclude=(lambda name, module: "blocks" in name, "head")), [])

    def test_what_stays(self):
        model = self.model.eval()
        model.head.train()
        old_head, old_names = model.head, [n for n, _ in model.named_parameters()]
        parameters = list(model.parameters())
        sb.replace_linear(model, sb.SwitchBackLinearVectorwise)
        self.assertIsInstance(model.head, sb.SwitchBackLinearVectorwise)
        self.assertIs(model.head, model.tied)
        self.assertIs(model.head.weight, old_head.weight)
        self.assertTrue(model.head.training)
        self.assertFalse(model.blocks[0].up.training)
        self.assertIs(type(model.attention.out_proj).__base__, nn.Linear)  # not replaced
        self.assertEqual([n for n, _ in model.named_parameters()], old_names)
        for before, after in zip(parameters, model.parameters()):
            self.assertIs(before, after)
        self.assertEqual(
            str(model.load_state_dict(Model().state_dict())), "<All keys matched successfully>"
        )
        again = []
        sb.replace_linear(model, replaced=again)
        self.assertEqual(again, [])

    def test_an_optimizer_made_before_goes_on(self):
        optimizer = torch.optim.SGD(self.model.parameters(), 0.05, momentum=0.9)
        sb.replace_linear(self.model)
        losses = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = (self.model(self.x) - 1).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        self.assertLess(losses[-1], 0.5 * losses[0])

    def test_results(self):
        want = self.model(self.x)
        standard = sb.replace_linear(self.model, sb.StandardLinear)(self.x)
        # Three float32 products one after another, each a sum of at most 16 terms: some 50 roundings of
        # numbers below 4.
        self.assertLess(float((standard - want).abs().max()), 50 * 4 * 2.0**-24)

    def test_ways_to_name_a_layer(self):
        for layer, options, mode in (
            (
                sb.SwitchBackLinear,
                {"vector_wise_quantization": True, "mem_efficient": True},
                "rowwise",
            ),
            (sb.SwitchBackLinear, {"mode": "auto"}, "auto"),
            (functools.partial(sb.SwitchBackLinear, mode="standard"), {}, "standard"),
            (sb.SwitchBackLinearGlobalMemEfficient, {}, "global"),
        ):
            model = sb.replace_linear(Block(), layer, **options)
            self.assertEqual(model.up.mode, mode)
            self.assertEqual(
                model.up.mem_efficient,
                mode == "rowwise" or layer is sb.SwitchBackLinearGlobalMemEfficient,
            )
            model(self.x).sum().backward()

    def test_the_model_itself(self):
        linear = nn.Linear(8, 3)
        replaced = []
        new = sb.replace_linear(linear, replaced=replaced)
        self.assertIsInstance(new, sb.SwitchBackLinear)
        self.assertIs(new.weight, linear.weight)
        self.assertEqual(replaced, [""])
        self.assertIs(sb.replace_linear(new), new)

    def test_hooks_are_kept(self):
        seen = []
        linear = self.model.head
        first = linear.register_forward_hook(
            lambda module, args, out: seen.append(("forward", out.shape))
        )
        linear.register_forward_pre_hook(lambda module, args: seen.append(("pre", args[0].shape)))
        linear.register_full_backward_hook(
            lambda module, gi, go: seen.append(("backward", go[0].shape))
        )
        sb.replace_linear(self.model)
        self.model.head(self.x.requires_grad_()).sum().backward()
        self.assertEqual([name for name, _ in seen], ["pre", "forward", "backward"])
        first.remove()
        self.model.head(self.x)
        self.assertEqual([name for name, _ in seen[3:]], ["pre"])

    def test_dtype_and_frozen(self):
        model = Block().bfloat16().requires_grad_(False)
        sb.replace_linear(model)
        self.assertEqual(model(self.x.bfloat16()).dtype, torch.bfloat16)
        self.assertFalse(model.up.weight.requires_grad)

    def test_a_computed_weight_is_refused(self):
        prune.random_unstructured(self.model.blocks[1].up, "weight", 0.5)
        with self.assertRaisesRegex(ValueError, "blocks.1.up"):
            sb.replace_linear(self.model)
        self.assertIs(type(self.model.head), nn.Linear)  # the failed call replaced nothing
        sb.replace_linear(self.model, exclude="blocks.1.up")
        self.assertIsInstance(self.model.head, sb.SwitchBackLinear)

    def test_hooks_on_the_state_dict_are_refused(self):
        self.model.head._register_load_state_dict_pre_hook(lambda *arguments: None)
        with self.assertRaisesRegex(ValueError, "head"):
            sb.replace_linear(self.model)

    def test_prepare_all(self):
        sb.replace_linear(self.model).eval()
        with torch.no_grad():
            want = self.model(self.x)
            for module in self.model.modules():
                if isinstance(module, sb.SwitchBackLinear):
                    module.prepare_for_eval()
            self.assertTrue(torch.equal(self.model(self.x), want))


class Nothing(unittest.TestCase):
    """A call of replace_linear that replaces nothing warns."""

    def warned(self, call):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            call()
        return [str(warning.message) for warning in found]

    def test_patterns_that_match_nothing(self):
        def model():
            return nn.Sequential(nn.Linear(4, 4), nn.ReLU())

        for words, options in (
            ("replaced nothing in Sequential.*include = 'attn", {"include": "attn.*"}),
            ("replaced nothing", {"include": "0", "exclude": "0"}),
            ("exclude = 'zzz' matches no module", {"exclude": ["zzz", "0"]}),
        ):
            (found,) = self.warned(lambda options=options: sb.replace_linear(model(), **options))
            self.assertRegex(found, words)
        for options in ({}, {"include": "0"}, {"exclude": "0"}, {"exclude": lambda name, _: False}):
            self.assertEqual(self.warned(lambda options=options: sb.replace_linear(model(), **options)), [])
        self.assertEqual(self.warned(lambda: sb.replace_linear(nn.Linear(4, 4))), [])

    def test_models_without_layers(self):
        (found,) = self.warned(lambda: sb.prepare_for_eval(nn.Sequential(nn.Linear(4, 4))))
        self.assertIn("no switchback layer in Sequential", found)
        model = sb.replace_linear(nn.Sequential(nn.Linear(4, 4)), mode="auto")
        (found,) = self.warned(lambda: sb.prepare_for_eval(model))
        self.assertIn("mode 'auto', which computes with float weights: nothing is prepared", found)
        model = sb.replace_linear(nn.Sequential(nn.Linear(4, 4)))
        self.assertEqual(self.warned(lambda: sb.prepare_for_eval(sb.prepare_for_eval(model))), [])


if __name__ == "__main__":
    unittest.main()
