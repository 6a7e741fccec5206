# SPDX-License-Identifier: Apache-2.0
"""Options of layers: rotation, weight gradients in int8, and stochastic rounding; and SwitchBackMLP."""

import copy
import itertools
import pickle
import unittest

from support import TensorCase, relative_error, require_torch, results_of, torch_at_least

torch = require_torch()

from look_alikes import Conv1D  # noqa: E402
from switchback import Error, ops  # noqa: E402
from switchback import nn as sb  # noqa: E402
from switchback.nn._mlp import activated  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

M, K, N = 300, 64, 24
GROUP = 16  # of a rotation

INT8_DW = {"dw": "int8_block", "dw_block_rows": 128}
STOCHASTIC = {**INT8_DW, "rounding": "stochastic", "seed": 7}


def layer(mode="rowwise", **options):
    """A layer that has the same weight and bias each time."""
    torch.manual_seed(1)
    return sb.SwitchBackLinear(K, N, mode=mode, **options)


def operands(dtype=torch.float32):
    """The input of a layer and the gradient of its output."""
    torch.manual_seed(2)
    return torch.randn(M, K, dtype=dtype), torch.randn(M, N, dtype=dtype)


class Rotation(TensorCase):
    def test_layer_is_a_plain_layer_of_rotated_operands(self):
        x, g = operands()
        for mode in ("rowwise", "global"):
            for mem_efficient in (False, True):
                rotated = layer(mode, rotation=GROUP, mem_efficient=mem_efficient)
                plain = layer(mode)
                with torch.no_grad():
                    plain.weight.copy_(ops.rotate(rotated.weight.detach(), GROUP))
                y, dx, dw, _ = results_of(rotated, x, g)
                want_y, want_dx, *_ = results_of(plain, ops.rotate(x, GROUP), g)
                self.equal((y, dx), (want_y, ops.rotate(want_dx, GROUP)))
                # dW is computed from x itself, or (mem_efficient) from codes with 127 steps of the largest
                # of 64 values.
                self.assertLess(relative_error(dw, g.T @ x), 0.02 if mem_efficient else 1e-6)

    def test_prepared_and_loaded_layers_keep_every_bit(self):
        for mode in ("rowwise", "global"):
            for dtype in (torch.float32, torch.bfloat16):
                module, other = (layer(mode, rotation=GROUP, dtype=dtype).eval() for _ in range(2))
                x, _ = operands(dtype)
                with torch.no_grad():
                    want = module(x)
                    self.equal([module.prepare_for_eval()(x)], [want])
                    other.weight.zero_()
                    other.load_state_dict(module.state_dict())
                    self.assertTrue(other.is_prepared)
                    for same in (other, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
                        self.equal([same(x)], [want])


class Int8WeightGradient(TensorCase):
    def test_only_the_weight_gradient_changes_and_little(self):
        for mode in ("rowwise", "global"):
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(mode=mode, dtype=dtype):
                    x, g = operands(dtype)
                    y, dx, dw, db = results_of(layer(mode, dw="int8_block").to(dtype), x, g)
                    want = results_of(layer(mode).to(dtype), x, g)
                    self.equal((y, dx, db), (want[0], want[1], want[3]))
                    # The error of codes of 256 normal numbers is 0.9 % (docs/numerics.md); bf16 adds 0.2 %.
                    self.assertLess(relative_error(dw, g.double().t() @ x.double()), 0.013)
                    self.assertFalse(torch.equal(dw, want[2]))

    def test_codes_are_kept_instead_of_x(self):
        kept = []

        def pack(tensor):
            kept.append((tuple(tensor.shape), tensor.dtype))
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            layer(**INT8_DW)(operands()[0])
        # The gradient of x is not wanted, so neither the weight nor x is kept.
        self.assertEqual(set(kept), {((K, 384), torch.int8), ((3, K), torch.float32)})

    def test_batches_of_other_shapes(self):
        x, g = operands()
        module = layer(**INT8_DW)
        want = results_of(module, x, g)[2]
        self.equal([results_of(module, x.view(3, 100, K), g.view(3, 100, N))[2]], [want])
        empty = results_of(module, x[:0], g[:0])[2]
        self.assertEqual(float(empty.abs().sum()), 0.0)
        auto = layer("auto", dw="int8_block")
        self.assertEqual(results_of(auto, x, g)[2].shape, (N, K))

    @unittest.skipUnless(hasattr(torch, "compile"), "torch.compile needs torch 2")
    def test_compiled_is_eager(self):
        module = layer(**INT8_DW)
        compiled = torch.compile(module, backend="aot_eager")
        self.equal(results_of(module, *operands(), compiled), results_of(module, *operands()))


class StochasticRounding(TensorCase):
    """Gradients whose codes are rounded at random, reproducibly."""

    def test_dx_and_dw_alone_change(self):
        for mode in ("rowwise", "rowwise_shared", "global"):
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(mode=mode, dtype=dtype):
                    x, g = operands(dtype)
                    y, dx, dw, db = results_of(layer(mode, **STOCHASTIC).to(dtype), x, g)
                    nearest = results_of(layer(mode, **INT8_DW).to(dtype), x, g)
                    self.equal((y, db), (nearest[0], nearest[3]))
                    for ours, theirs in ((dx, nearest[1]), (dw, nearest[2])):
                        self.assertFalse(torch.equal(ours, theirs))
                        # Two stochastic roundings of a number differ by 1 with a probability of 1/4, that
                        # is, by 1/2 in the mean square, times absmax / 127. absmax is mostly below 3.5 for
                        # 24 or 128 normal numbers. That is 1.75 / 127.
                        self.assertLess(relative_error(ours, theirs), 3 / 127)

    def test_a_backward_in_two_parts_is_one_step(self):
        x, g = operands()
        x.requires_grad_()
        for module in (layer(**STOCHASTIC), layer(rounding="stochastic", seed=7)):
            operands_of_y = [x, *module.parameters()]
            y = module(x)
            want = torch.autograd.grad(y, operands_of_y, g, retain_graph=True)
            self.assertEqual(module.rounding_step, 1)
            twice = torch.autograd.grad(y, operands_of_y, g)
            self.assertEqual(module.rounding_step, 2)
            self.assertFalse(torch.equal(twice[0], want[0]))
            for order in (slice(0, 1), slice(1, 3)), (slice(1, 3), slice(0, 1)):
                module.rounding_step = 0
                y, got = module(x), [None] * 3
                for part in order:
                    got[part] = torch.autograd.grad(y, operands_of_y[part], g, retain_graph=True)
                self.assertEqual(module.rounding_step, 1)
                self.equal(got, want)

    def test_bits_are_of_the_seed_and_the_step(self):
        x, g = operands()
        module = layer(**STOCHASTIC)
        first, second = results_of(module, x, g), results_of(module, x, g)
        self.assertEqual(module.rounding_step, 2)
        for place in (1, 2):
            self.assertFalse(torch.equal(first[place], second[place]))
        again, later = layer(**STOCHASTIC), layer(**STOCHASTIC)
        self.equal(results_of(again, x, g), first)
        self.equal(results_of(again, x, g), second)
        later.rounding_step = 1
        self.equal(results_of(later, x, g), second)
        other = layer(**{**STOCHASTIC, "seed": 2**64 - 1})
        self.assertFalse(torch.equal(results_of(other, x, g)[1], first[1]))
        # Without a seed, the layer draws one from torch's generator.
        self.assertEqual(*(layer(rounding="stochastic").seed for _ in range(2)))
        self.assertNotEqual(*(sb.SwitchBackLinear(K, N, rounding="stochastic").seed for _ in range(2)))

    def test_checkpointing(self):
        want = results_of(layer(**STOCHASTIC), *operands())
        for reentrant in (False, True):
            module = layer(**STOCHASTIC)

            def recomputed(x, module=module, reentrant=reentrant):
                return checkpoint(module, x, use_reentrant=reentrant)

            self.equal(results_of(module, *operands(), recomputed), want)

    @unittest.skipUnless(torch_at_least(2, 0), "autocast on CPUs as it is since torch 2")
    def test_autocast(self):
        def cast_gradients():
            module = layer(**STOCHASTIC)
            with torch.no_grad():  # so that rounding the weight to bf16 does not change its codes
                module.weight.copy_(module.weight.bfloat16())

            def call(x):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    return module(x)

            return results_of(module, *operands(), call)

        found = cast_gradients()
        self.equal(cast_gradients(), found)
        y, dx, dw, _ = found
        self.assertEqual((y.dtype, dw.dtype), (torch.bfloat16, torch.float32))
        of_bf16 = results_of(layer(**STOCHASTIC).bfloat16(), *operands(torch.bfloat16))
        self.equal([dx], [of_bf16[1].float()])
        self.assertLess(relative_error(dw, of_bf16[2]), 2**-8)  # a single rounding of the result to bf16

    @unittest.skipUnless(hasattr(torch, "compile"), "torch.compile needs torch 2")
    def test_compiled_backwards_are_refused(self):
        x, g = operands()
        prepared = layer(**STOCHASTIC).prepare_for_eval()
        compiled = torch.compile(prepared, backend="aot_eager", fullgraph=True)
        self.equal([compiled(x)], [layer().prepare_for_eval()(x)])
        trained = torch.compile(layer(**STOCHASTIC), backend="aot_eager", fullgraph=True)
        for module in (compiled, trained):
            with self.assertRaisesRegex(Exception, "rounding = 'stochastic' in a compiled"):
                module(x.clone().requires_grad_()).backward(g)

    def test_prepared_layers(self):
        # The gradient is multiplied by the row scales of the weight before it is quantized, as in mode
        # rowwise_shared.
        x, g = operands()
        float_weight = layer("rowwise_shared", **STOCHASTIC)
        prepared = layer(**STOCHASTIC).prepare_for_eval()
        for _ in range(2):
            self.equal([results_of(prepared, x, g)[1]], [results_of(float_weight, x, g)[1]])
        self.assertEqual(prepared.rounding_step, 2)
        # Codes of other programs may be -128. Its products must be twice those of -64.
        found = []
        for code in (-128, -64):
            with torch.no_grad():
                prepared.W_int8.zero_()[0, 0] = code
            prepared.rounding_step = 5
            found.append(results_of(prepared, x, g)[1])
        self.equal([found[0]], [2 * found[1]])
        self.assertGreater(float(found[0].abs().max()), 0)


class Mlp(TensorCase):
    def setUp(self):
        torch.manual_seed(0)

    def test_bits_of_separate_operations(self):
        for options in (
            {"mode": "rowwise", "dtype": torch.bfloat16},
            {"mode": "rowwise", "activation": "gelu_erf", "dw": "int8_block"},
            {"mode": "rowwise_shared", "dw": "int8_block"},
            {"mode": "global", "activation": "gelu_erf", "dtype": torch.bfloat16},
            {"mode": "global"},
        ):
            mlp = sb.SwitchBackMLP(24, 96, 20, **options)
            self.assertEqual((mlp.up.dw, mlp.down.dw), (options.get("dw", "floating"),) * 2)
            dtype = mlp.up.weight.dtype
            x, g = torch.randn(3, 100, 24, dtype=dtype), torch.randn(3, 100, 20, dtype=dtype)
            activation = options.get("activation", "gelu_tanh")

            def apart(x, mlp=mlp, activation=activation):
                return mlp.down(activated(mlp.up(x), activation))

            for _ in range(2):
                with self.subTest(**options):
                    self.equal(results_of(mlp, x, g), results_of(mlp, x, g, apart))
                with torch.no_grad():
                    mlp.down.weight.data.mul_(1.5)

    def test_of_other_layers(self):
        def conv1d(inputs, outputs):
            return Conv1D(outputs, inputs)

        for make, dw in itertools.product((nn.Linear, conv1d), ("floating", "int8_block")):
            up, down = make(24, 96), make(96, 32)
            turned = torch.t if make is conv1d else lambda tensor: tensor
            parameters = up.weight, up.bias, down.weight, down.bias
            linear = sb.SwitchBackMLP(24, 96, 32, activation="gelu_erf", dw=dw)
            with torch.no_grad():
                for mine, theirs in zip(linear.parameters(), parameters):
                    mine.copy_(turned(theirs))
            mlp = sb.SwitchBackMLP.of(up, down, "gelu_erf", dw=dw)
            for mine, theirs in zip(mlp.parameters(), parameters):
                self.assertIs(mine, theirs)
            x, g = torch.randn(M, 24), torch.randn(M, 32)
            got, want = results_of(mlp, x, g), results_of(linear, x, g)
            self.equal(got[:2], want[:2])
            for a, b in zip(got[2:], want[2:]):
                # dW in floating point is the same sum, added in another order.
                self.assertLess(relative_error(a, turned(b)), 1e-6)
            copied = copy.deepcopy(mlp)
            y, dx, *_ = results_of(sb.prepare_for_eval(mlp), x, g)
            self.equal([copied(x), y], [want[0]] * 2)
            self.assertLess(relative_error(dx, want[1]), 0.02)  # other codes of g, as in rowwise_shared

    def test_less_is_kept(self):
        mlp, x = sb.SwitchBackMLP(16, 64), torch.randn(8, 16, requires_grad=True)
        kept = set()

        def pack(tensor):
            if tensor.shape == (8, 64):
                kept.add(tensor.data_ptr())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            mlp(x)
        self.assertEqual(len(kept), 1)


class Rejections(unittest.TestCase):
    def test_options(self):
        for options, text in (
            ({"rotation": 32}, "rotation = 32; it must be 0, 4, 16, 64, 256 or 1024"),
            ({"rotation": 256}, "in_features = 64; it must be a multiple of rotation, 256"),
            ({"rotation": 64, "mode": "standard"}, "rotation = 64 in mode 'standard'"),
            ({"dw": "int8"}, "dw = 'int8'; it must be 'floating' or 'int8_block'"),
            ({**INT8_DW, "dw_block_rows": 100}, "dw_block_rows = 100; it must be 128, 256, 512 or 1024"),
            ({**INT8_DW, "mode": "standard"}, "dw = 'int8_block' in mode 'standard'"),
            ({**INT8_DW, "mode": "global", "mem_efficient": True}, "dw = 'int8_block' with mem_efficient"),
            ({"rounding": "up"}, "rounding = 'up'; it must be 'nearest' or 'stochastic'"),
            ({"rounding": "nearest", "seed": 1}, "seed = 1 with rounding = 'nearest'"),
            ({"rounding": "stochastic", "seed": -1}, "seed = -1; it must be from 0 to"),
            ({"rounding": "stochastic", "mode": "standard"}, "'stochastic' in mode 'standard'"),
        ):
            with self.subTest(options=options), self.assertRaisesRegex(ValueError, text):
                layer(**options)
        with self.assertRaisesRegex(ValueError, "rounding_step = -1"):
            layer(**STOCHASTIC).rounding_step = -1
        with self.assertRaisesRegex(Error, "K = 24; it must be a multiple"):
            ops.rotate(torch.randn(2, 24), 64)
        said = repr(layer(rotation=64, **STOCHASTIC))
        for words in ("rotation=64", "dw=int8_block, dw_block_rows=128", "rounding=stochastic, seed=7"):
            self.assertIn(words, said)

    def test_perceptrons(self):
        for words, call in (
            ("'relu'", lambda: sb.SwitchBackMLP(4, 8, activation="relu")),
            ("Linear and Conv1D", lambda: sb.SwitchBackMLP.of(nn.Linear(4, 8), Conv1D(4, 8))),
            ("8 outputs.*9 inputs", lambda: sb.SwitchBackMLP.of(Conv1D(8, 4), Conv1D(4, 9))),
            ("8 outputs", lambda: sb.SwitchBackMLP.of(nn.Linear(4, 8), nn.Linear(9, 4))),
        ):
            with self.assertRaisesRegex(ValueError, words):
                call()


if __name__ == "__main__":
    unittest.main()
