# SPDX-License-Identifier: Apache-2.0
"""rounding="stochastic": gradients whose codes are rounded at random, reproducibly."""

import unittest

from support import require_torch, torch_at_least

torch = require_torch()

from torch.utils.checkpoint import checkpoint  # noqa: E402

from switchback import nn as sb  # noqa: E402

M, K, N = 300, 40, 24


def layer(**options):
    torch.manual_seed(1)
    options.setdefault("mode", "rowwise")
    options.setdefault("rounding", "stochastic")
    if options["rounding"] == "stochastic":
        options.setdefault("seed", 7)
    return sb.SwitchBackLinear(K, N, dw="int8_block", dw_block_rows=128, **options)


def operands(dtype=torch.float32):
    torch.manual_seed(2)
    return torch.randn(M, K, dtype=dtype), torch.randn(M, N, dtype=dtype)


def gradients(module, x, g, call=None):
    x = x.clone().requires_grad_()
    module.zero_grad(set_to_none=True)
    y = (call or module)(x)
    y.backward(g.to(y.dtype))
    return y.detach(), x.grad, module.weight.grad, module.bias.grad


def same(a, b):
    return all(torch.equal(one, other) for one, other in zip(a, b))


class StochasticRounding(unittest.TestCase):
    def test_dx_and_dw_alone_change(self):
        for mode in ("rowwise", "rowwise_shared", "global"):
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(mode=mode, dtype=dtype):
                    x, g = operands(dtype)
                    y, dx, dw, db = gradients(layer(mode=mode).to(dtype), x, g)
                    nearest = gradients(layer(mode=mode, rounding="nearest").to(dtype), x, g)
                    self.assertTrue(torch.equal(y, nearest[0]))
                    self.assertTrue(torch.equal(db, nearest[3]))
                    for ours, theirs in ((dx, nearest[1]), (dw, nearest[2])):
                        self.assertFalse(torch.equal(ours, theirs))
                        error = (ours.double() - theirs.double()).norm() / theirs.double().norm()
                        # Two stochastic roundings of a number differ by 1 with a probability of 1/4, that
                        # is, by 1/2 in the mean square, times absmax / 127. absmax is mostly below 3.5 for
                        # 24 or 128 normal numbers. That is 1.75 / 127.
                        self.assertLess(error, 3 / 127)

    def test_a_backward_in_two_parts_is_one_step(self):
        x, g = operands()
        x.requires_grad_()
        for module in (layer(), sb.SwitchBackLinear(K, N, mode="rowwise", rounding="stochastic", seed=7)):
            parameters = list(module.parameters())
            y = module(x)
            want = torch.autograd.grad(y, [x, *parameters], g, retain_graph=True)
            self.assertEqual(module.rounding_step, 1)
            twice = torch.autograd.grad(y, [x, *parameters], g)
            self.assertEqual(module.rounding_step, 2)
            self.assertFalse(torch.equal(twice[0], want[0]))
            module.rounding_step = 0
            for order in (slice(0, 1), slice(1, 3)), (slice(1, 3), slice(0, 1)):
                module.rounding_step = 0
                y, got = module(x), [None] * 3
                for part in order:
                    wanted = [x, *parameters][part]
                    got[part] = torch.autograd.grad(y, wanted, g, retain_graph=True)
                self.assertEqual(module.rounding_step, 1)
                self.assertTrue(same(got, want))

    def test_bits_are_of_the_seed_and_the_step(self):
        x, g = operands()
        module = layer()
        first, second = gradients(module, x, g), gradients(module, x, g)
        self.assertEqual(module.rounding_step, 2)
        self.assertFalse(torch.equal(first[1], second[1]))
        self.assertFalse(torch.equal(first[2], second[2]))
        again = layer()
        self.assertTrue(same(gradients(again, x, g), first))
        self.assertTrue(same(gradients(again, x, g), second))
        later = layer()
        later.rounding_step = 1
        self.assertTrue(same(gradients(later, x, g), second))
        self.assertFalse(torch.equal(gradients(layer(seed=2**64 - 1), x, g)[1], first[1]))
        # Without a seed, the layer draws one from torch's generator.
        self.assertEqual(layer(seed=None).seed, layer(seed=None).seed)
        torch.manual_seed(5)
        self.assertNotEqual(
            *(sb.SwitchBackLinear(K, N, rounding="stochastic").seed for _ in range(2))
        )

    def test_checkpointing(self):
        x, g = operands()
        want = gradients(layer(), x, g)
        for reentrant in (False, True):
            module = layer()

            def recomputed(x, module=module, reentrant=reentrant):
                return checkpoint(module, x, use_reentrant=reentrant)

            self.assertTrue(same(gradients(module, x, g, recomputed), want))

    @unittest.skipUnless(torch_at_least(2, 0), "autocast on CPUs as it is since torch 2")
    def test_autocast(self):
        x, g = operands()

        def casts(module):
            def call(x):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    return module(x)

            return call

        module, again = layer(), layer()
        with torch.no_grad():  # so that rounding the weight to bf16 does not change its codes
            for one in (module, again):
                one.weight.copy_(one.weight.bfloat16())
        found = gradients(module, x, g, casts(module))
        self.assertEqual(found[0].dtype, torch.bfloat16)
        self.assertTrue(same(gradients(again, x, g, casts(again)), found))
        of_bf16 = gradients(layer().bfloat16(), x.bfloat16(), g.bfloat16())
        self.assertTrue(torch.equal(found[1], of_bf16[1].float()))

    @unittest.skipUnless(hasattr(torch, "compile"), "torch.compile needs torch 2")
    def test_compiled_models_are_refused(self):
        x, _ = operands()
        compiled = torch.compile(layer(), backend="aot_eager", fullgraph=True)
        with self.assertRaisesRegex(Exception, "rounding = 'stochastic' in a compiled"):
            compiled(x.requires_grad_())

    def test_prepared_layers(self):
        # The gradient is multiplied by the row scales of the weight before it is quantized, as in mode
        # rowwise_shared.
        x, g = operands()
        float_weight = layer(mode="rowwise_shared")
        prepared = layer().prepare_for_eval()
        for _ in range(2):
            expected = gradients(float_weight, x, g)[1]
            into = x.clone().requires_grad_()
            prepared(into).backward(g)
            self.assertTrue(torch.equal(into.grad, expected))
        self.assertEqual(prepared.rounding_step, 2)
        # Codes of other programs may be -128. Its products must be twice those of -64.
        found = []
        for code in (-128, -64):
            with torch.no_grad():
                prepared.W_int8.zero_()[0, 0] = code
            prepared.rounding_step = 5
            into = x.clone().requires_grad_()
            prepared(into).backward(g)
            found.append(into.grad)
        self.assertTrue(torch.equal(found[0], 2 * found[1]))
        self.assertGreater(float(found[0].abs().max()), 0)

    @unittest.skipUnless(hasattr(torch, "compile"), "torch.compile needs torch 2")
    def test_compiled_backwards_of_prepared_layers_are_refused(self):
        x, g = operands()
        compiled = torch.compile(layer().prepare_for_eval(), backend="aot_eager", fullgraph=True)
        self.assertTrue(torch.equal(compiled(x), layer().prepare_for_eval()(x)))
        y = compiled(x.requires_grad_())
        with self.assertRaisesRegex(Exception, "rounding = 'stochastic' in a compiled"):
            y.backward(g)

    def test_rejections(self):
        for options, text in (
            ({"rounding": "up"}, "rounding = 'up'; it must be 'nearest' or 'stochastic'"),
            ({"rounding": "nearest", "seed": 1}, "seed = 1 with rounding = 'nearest'"),
            ({"seed": -1}, "seed = -1; it must be from 0 to"),
        ):
            with self.subTest(options=options), self.assertRaisesRegex(ValueError, text):
                layer(**options)
        with self.assertRaisesRegex(ValueError, "'stochastic' in mode 'standard'"):
            sb.SwitchBackLinear(K, N, mode="standard", rounding="stochastic")
        with self.assertRaisesRegex(ValueError, "rounding_step = -1"):
            layer().rounding_step = -1
        self.assertIn("rounding=stochastic, seed=7", repr(layer()))


if __name__ == "__main__":
    unittest.main()
