# SPDX-License-Identifier: Apache-2.0
"""The layers as part of autograd's graphs: shapes, strides, hooks, checkpoints, autocast."""

import contextlib
import copy
import gc
import io
import pickle
import threading
import unittest
import weakref
from unittest import mock

from support import require_torch, torch_at_least

torch = require_torch()

from torch.utils.checkpoint import checkpoint  # noqa: E402

import switchback  # noqa: E402
from switchback import nn as sb  # noqa: E402
from switchback._tensors import HAS_OPERATORS  # noqa: E402
from switchback.nn import _dispatch, _fragmented, _function, _grouped  # noqa: E402
from switchback.nn._layer import Layer  # noqa: E402

LAYERS = (
    (sb.SwitchBackLinear, {}),
    (sb.SwitchBackLinear, {"mem_efficient": True}),
    (sb.SwitchBackLinearVectorwise, {}),
    (sb.SwitchBackLinearVectorwise, {"mem_efficient": True}),
    (sb.StandardLinear, {}),
)


def grads(layer, x, g, forward=None):
    """Runs a layer; returns its output and the gradients of x, weight and bias, without earlier gradients."""
    layer.zero_grad()
    x = x.detach().requires_grad_()
    y = (forward or layer)(x)
    y.backward(g)
    return [t.detach().clone() for t in (y, x.grad, layer.weight.grad, layer.bias.grad)]


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def equal(self, got, want):
        for a, b in zip(got, want):
            self.assertEqual((a.shape, a.dtype), (b.shape, b.dtype))
            self.assertTrue(torch.equal(a, b))

    def same(self, layer, got, want):
        """Asserts equality, except for floating point products of the same numbers with other strides.

        Such products may be added in another order, which makes a difference of a few roundings of sums of
        up to 24 products of normal numbers, |sum| < 100: 24 * 2^-24 * 100 < 2e-4.
        """
        floats = (0, 1, 2) if layer.mode == "standard" else (2,)
        for i, (a, b) in enumerate(zip(got, want)):
            if i in floats:
                self.assertEqual((a.shape, a.dtype), (b.shape, b.dtype))
                self.assertLess(float((a - b).abs().max()), 2e-4)
            else:
                self.equal([a], [b])

    def layers(self, k=19, n=11):
        return [make(k, n, **options) for make, options in LAYERS]


class Shapes(Case):
    def test_leading_dimensions(self):
        for layer in self.layers():
            flat, g = torch.randn(24, 19), torch.randn(24, 11)
            want = grads(layer, flat, g)
            for shape in ((2, 12), (2, 3, 4), (24, 1), (1, 1, 24)):
                got = grads(layer, flat.reshape(*shape, 19), g.reshape(*shape, 11))
                self.equal([t.reshape(w.shape) for t, w in zip(got, want)], want)
            y = layer(flat[0])
            self.assertEqual(y.shape, (11,))
            if layer.mode != "standard":  # floating point sums of a single row are added in another order
                self.assertTrue(torch.equal(y, want[0][0]))

    def test_strides(self):
        for layer in self.layers():
            x, g = torch.randn(6, 19), torch.randn(6, 11)
            want = grads(layer, x, g)
            wide = torch.randn(6, 40)
            wide[:, 3:22] = x
            every_other = torch.randn(12, 19)
            every_other[::2] = x
            for given in (wide[:, 3:22], every_other[::2], x.t().contiguous().t()):
                self.same(layer, grads(layer, given, g), want)
            blocks = torch.randn(2, 3, 30)
            blocks[..., :19] = x.view(2, 3, 19)
            swapped = x.view(2, 3, 19).transpose(0, 1).contiguous().transpose(0, 1)
            for given in (blocks[..., :19], swapped):
                got = grads(layer, given, g.view(2, 3, 11))
                self.same(layer, [got[0].reshape(6, 11), got[1].reshape(6, 19), *got[2:]], want)
            for given in (g.t().contiguous().t(), torch.cat([g, g], 1)[:, :11]):
                self.same(layer, grads(layer, x, given), want)

    def test_expanded(self):
        for layer in self.layers():
            x = torch.randn(1, 19)
            copies = grads(layer, x.repeat(5, 1), torch.ones(5, 11))
            layer.zero_grad()
            y = layer(x.expand(5, 19))
            y.sum().backward()  # the gradient of y has strides of 0
            self.equal([y, layer.weight.grad, layer.bias.grad], [copies[0], copies[2], copies[3]])

    def test_empty_batch(self):
        for layer in self.layers():
            for shape in ((0,), (2, 0), (0, 3)):
                got = grads(layer, torch.randn(*shape, 19), torch.randn(*shape, 11))
                self.assertEqual([tuple(t.shape) for t in got[:2]], [(*shape, 11), (*shape, 19)])
                self.assertTrue((got[2] == 0).all() and (got[3] == 0).all())

    def test_without_bias(self):
        for make, options in LAYERS:
            layer = make(19, 11, bias=False, **options)
            x = torch.randn(3, 19, requires_grad=True)
            layer(x).sum().backward()
            self.assertIsNone(layer.bias)
            self.assertEqual(x.grad.shape, x.shape)

    def test_only_what_is_wanted(self):
        for layer in self.layers():
            x, g = torch.randn(4, 19), torch.randn(4, 11)
            want = grads(layer, x, g)[1:]
            for wanted in range(1, 8):
                flags = [bool(wanted >> i & 1) for i in range(3)]
                given = x.detach().requires_grad_(flags[0])
                layer.weight.requires_grad_(flags[1])
                layer.bias.requires_grad_(flags[2])
                layer.zero_grad(set_to_none=True)
                layer(given).backward(g)
                for flag, tensor, gradient in zip(flags, (given, layer.weight, layer.bias), want):
                    if flag:
                        self.assertTrue(torch.equal(tensor.grad, gradient))
                    else:
                        self.assertIsNone(tensor.grad)
            layer.requires_grad_(False)
            self.assertFalse(layer(x).requires_grad)


class Graphs(Case):
    def test_twice_in_one_graph(self):
        for layer in self.layers():
            a, b = torch.randn(3, 19), torch.randn(5, 19)
            ga, gb = torch.randn(3, 11), torch.randn(5, 11)
            first, second = grads(layer, a, ga), grads(layer, b, gb)
            layer.zero_grad()
            xa, xb = a.clone().requires_grad_(), b.clone().requires_grad_()
            ya, yb = layer(xa), layer(xb)
            torch.autograd.backward([ya, yb], [ga, gb])
            self.equal([ya, xa.grad, yb, xb.grad], [*first[:2], *second[:2]])
            for parameter, one, other in zip((layer.weight, layer.bias), first[2:], second[2:]):
                self.assertTrue(torch.equal(parameter.grad, one + other))

    def test_a_layer_after_itself(self):
        for layer in self.layers(16, 16):
            x, g = torch.randn(4, 16), torch.randn(4, 16)
            middle = layer(x).detach()
            second = grads(layer, middle, g)
            first = grads(layer, x, second[1])
            both = grads(layer, x, g, forward=lambda t, layer=layer: layer(layer(t)))
            self.equal(both[:2], [second[0], first[1]])
            # A sum of two gradients is the same in either order.
            self.equal(both[2:], [first[2] + second[2], first[3] + second[3]])

    def test_retain_graph(self):
        for layer in self.layers():
            x, g = torch.randn(3, 19, requires_grad=True), torch.randn(3, 11)
            y = layer(x)
            one = torch.autograd.grad(y, [x, layer.weight], g, retain_graph=True)
            with torch.no_grad():
                layer(torch.randn(2, 19))  # calls between forward and backward do not matter
            two = torch.autograd.grad(y, [x, layer.weight], g)
            self.equal(one, two)
            with self.assertRaises(RuntimeError):
                torch.autograd.grad(y, [x], g)

    def test_no_second_derivative(self):
        layer = sb.SwitchBackLinear(4, 4)
        x = torch.randn(2, 4, requires_grad=True)
        (dx,) = torch.autograd.grad(layer(x).sum(), x, create_graph=True)
        with self.assertRaises(RuntimeError):
            dx.sum().backward()

    def test_forward_mode_is_refused_and_not_ignored(self):
        layer = sb.SwitchBackLinear(4, 4).requires_grad_(False)
        with torch.autograd.forward_ad.dual_level():
            x = torch.autograd.forward_ad.make_dual(torch.randn(2, 4), torch.randn(2, 4))
            with self.assertRaises((RuntimeError, NotImplementedError)):
                layer(x)

    def test_checkpointing(self):
        for layer in self.layers():
            x, g = torch.randn(3, 19), torch.randn(3, 11)
            want = grads(layer, x, g)
            for reentrant in (True, False):
                got = grads(
                    layer, x, g, lambda t, r=reentrant, m=layer: checkpoint(m, t, use_reentrant=r)
                )
                self.equal(got, want)

    def test_saved_tensor_hooks(self):
        for layer in self.layers():
            x, g = torch.randn(3, 19), torch.randn(3, 11)
            want = grads(layer, x, g)
            packed = []

            def pack(tensor, packed=packed):
                packed.append(tensor)
                return tensor.clone().numpy()  # another object with other memory

            with torch.autograd.graph.saved_tensors_hooks(pack, torch.from_numpy):
                got = grads(layer, x, g)
            self.equal(got, want)
            self.assertTrue(packed)
            if layer.mem_efficient:
                kinds = {t.dtype for t in packed if t.shape == (3, 19)}
                self.assertEqual(kinds, {torch.int8})  # the input itself is not saved
            with torch.autograd.graph.save_on_cpu():
                got = grads(layer, x, g)
            self.equal(got, want)

    def test_changes_in_place_are_noticed(self):
        for layer in self.layers():
            inner = torch.randn(3, 19, requires_grad=True)
            y = layer(inner * 1)
            with torch.no_grad():
                layer.weight.add_(1)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                y.sum().backward()
            x = torch.randn(3, 19)
            y = layer(x)
            x.add_(1)
            if layer.mem_efficient:
                y.sum().backward()  # the saved tensor is codes, not x
            else:
                with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                    y.sum().backward()

    def test_a_graph_outlives_the_threads_setting(self):
        for layer in self.layers():
            x, g = torch.randn(3, 19), torch.randn(3, 11)
            want = grads(layer, x, g)
            for wants_dx in (True, False):
                layer.zero_grad()
                given = x.clone().requires_grad_(wants_dx)
                y = layer(given)
                switchback.set_num_threads(1)
                y.backward(g)
                self.assertTrue(torch.equal(layer.weight.grad, want[2]))
                if wants_dx:
                    self.assertTrue(torch.equal(given.grad, want[1]))

    def test_gradients_off(self):
        for layer in self.layers():
            x = torch.randn(3, 19)
            want = layer(x).detach()
            for off in (torch.no_grad, torch.inference_mode):
                with off():
                    y = layer(x)
                self.assertFalse(y.requires_grad)
                self.assertTrue(torch.equal(y, want))
            with torch.inference_mode():
                made_there = type(layer)(19, 11)
                a = made_there(x)
                made_there.weight.mul_(2)  # an inference tensor does not count its changes
                made_there.bias.mul_(2)
                self.assertTrue(torch.equal(a * 2, made_there(x)))


@contextlib.contextmanager
def gradients_made():
    """Records which of dx, dw and db the library computes in each backward of a linear layer, as letters:
    "xwb"."""
    made, call = [], Layer.backward

    def backward(self, g, rows, stride, dx, dw, db, *rest, **named):
        made.append("".join(c for c, d in zip("xwb", (dx, dw, db)) if d is not None))
        return call(self, g, rows, stride, dx, dw, db, *rest, **named)

    class Counting:
        """Wraps the compiled dispatch, if it is available, to record the gradients that it computes."""

        def __getattr__(self, name):
            function = getattr(_dispatch.native, name)
            if name != "backward":
                return function

            def compiled(*arguments):
                grads = function(*arguments)
                if grads is not None:
                    made.append("".join(c for c, d in zip("xwb", grads) if d is not None))
                return grads

            return compiled

    native = Counting() if _dispatch.native else None
    with mock.patch.object(Layer, "backward", backward), mock.patch.object(
        _function, "native", native
    ):
        yield made


class Parts(Case):
    """Callers that want only some of the gradients: the library does not compute the others."""

    def test_of_a_linear_layer(self):
        options = ({}, {"mem_efficient": True}, {"dw": "int8_block", "dw_block_rows": 128})
        modes = [sb.SwitchBackLinear(19, 11, mode="rowwise", **more) for more in options]
        for layer in [*self.layers(), *modes]:
            x, g = torch.randn(4, 19, requires_grad=True), torch.randn(4, 11)
            operands = {"x": x, "w": layer.weight, "b": layer.bias}
            for _ in range(2):  # twice, because compiled code takes over from the second call on
                want = dict(zip("xwb", torch.autograd.grad(layer(x), list(operands.values()), g)))
            y = layer(x * 1)  # an x that is not a leaf
            for wanted in ("x", "w", "b", "xw", "wb", "xb", "xwb"):
                given = [operands[name] for name in wanted]
                with gradients_made() as made:
                    got = torch.autograd.grad(y, given, g, retain_graph=True)
                    self.assertEqual(made, [wanted])
                    for operand in operands.values():
                        operand.grad = None
                    y.backward(g, inputs=given, retain_graph=True)
                    self.assertEqual(made, [wanted, wanted])
                self.equal(got, [want[name] for name in wanted])
                self.equal([operand.grad for operand in given], got)
            with gradients_made() as made:
                y.backward(g)
            self.assertEqual(made, ["xwb"])

    def test_of_other_layers(self):
        offs = torch.tensor([3, 8], dtype=torch.int32)
        grouped = sb.SwitchBackGroupedLinear(2, 19, 11)
        mlp = sb.SwitchBackMLP(19, 24, 11)
        qkv = torch.nn.ModuleDict(
            {name: sb.SwitchBackLinearVectorwise(19, 8) for name in ("query", "key", "value")}
        )
        sb.fuse_qkv(qkv)
        cases = {
            "grouped": (grouped, lambda x: grouped(x, offs)),
            "mlp": (mlp, mlp),
            "fuse_qkv": (qkv, lambda x: torch.cat([layer(x) for layer in qkv.values()], -1)),
            "fragmented": (sb.FragmentedLinear(20, 11, 4), None),
        }
        for name, (module, call) in cases.items():
            x = torch.randn(8, 20 if name == "fragmented" else 19, requires_grad=True)
            weights = list(module.parameters())
            y = (call or module)(x)
            g = torch.randn_like(y)
            with self.subTest(name):
                want = torch.autograd.grad(y, [x, *weights], g, retain_graph=True)
                with library_gradients() as made:
                    got = torch.autograd.grad(y, [x], g, retain_graph=True)
                self.assertTrue(made)
                self.assertEqual(set(made), {(True, False)})  # dx alone
                with library_gradients() as made:
                    got += torch.autograd.grad(y, weights, g, retain_graph=True)
                self.assertEqual(made[-1], (False, True))  # the last record is that of the first layer
                self.equal(got, want)

    def test_of_frozen_weights_after_an_activation(self):
        mlp = sb.SwitchBackMLP(19, 24, 11)
        x, g = torch.randn(4, 19, requires_grad=True), torch.randn(4, 11)
        want = torch.autograd.grad(mlp(x), [x, mlp.up.weight], g)
        mlp.down.requires_grad_(False)
        self.equal(torch.autograd.grad(mlp(x), [x, mlp.up.weight], g), want)
        mlp.requires_grad_(False)
        self.equal(torch.autograd.grad(mlp(x), [x], g), want[:1])

    def test_of_a_prepared_layer(self):
        layer = sb.SwitchBackLinearVectorwise(19, 11).prepare_for_eval()
        x, g = torch.randn(4, 19, requires_grad=True), torch.randn(4, 11)
        y = layer(x)
        want = torch.autograd.grad(y, [x, layer.bias], g, retain_graph=True)
        with gradients_made() as made:
            self.equal(torch.autograd.grad(y, [layer.bias], g, retain_graph=True), want[1:])
        self.assertEqual(made, [])
        self.equal(torch.autograd.grad(y, [x], g), want[:1])

    @unittest.skipUnless(HAS_OPERATORS, "this torch has no operators")
    def test_of_the_operator(self):
        x, w = torch.randn(4, 19, requires_grad=True), torch.randn(11, 19, requires_grad=True)
        y = torch.ops.switchback.linear(x, w, None, "mode=rowwise")
        want = torch.autograd.grad(y.sum(), [x, w], retain_graph=True)
        for wanted, place in (("x", 0), ("w", 1)):
            with gradients_made() as made, mock.patch.object(_operators(), "native", None):
                got = torch.autograd.grad(y.sum(), [(x, w)[place]], retain_graph=True)
            self.assertEqual(made, [wanted])
            self.equal(got, want[place : place + 1])


@contextlib.contextmanager
def library_gradients():
    """Records for each backward in the library whether it computes dx, and whether gradients of parameters.
    """
    made = []
    linear, grouped = Layer.backward, _grouped._GroupedLayer.grouped_backward
    fragmented = _fragmented._FragmentedLayer.gradients

    def of_linear(self, g, rows, stride, dx, dw, db, *rest):
        made.append((dx is not None, dw is not None or db is not None))
        return linear(self, g, rows, stride, dx, dw, db, *rest)

    def of_groups(self, g, x, offs, index, dx, dw, db):
        made.append((dx is not None, dw is not None or db is not None))
        return grouped(self, g, x, offs, index, dx, dw, db)

    def of_fragments(self, g, x, dx, of_weights):
        made.append((dx is not None, any(d is not None for d in of_weights)))
        return fragmented(self, g, x, dx, of_weights)

    with contextlib.ExitStack() as stack:
        for owner, name, function in (
            (Layer, "backward", of_linear),
            (_grouped._GroupedLayer, "grouped_backward", of_groups),
            (_fragmented._FragmentedLayer, "gradients", of_fragments),
            (_function, "native", None),
        ):
            stack.enter_context(mock.patch.object(owner, name, function))
        yield made


def _operators():
    from switchback.nn import _operators as found

    return found


class Autocast(Case):
    def test_bfloat16(self):
        for layer in self.layers():
            half = copy.deepcopy(layer).bfloat16()
            with torch.no_grad():
                half.bias.zero_()
                layer.bias.zero_()  # the bias stays float32 in this layer
                layer.weight.copy_(half.weight)  # codes are made from the float32 weight
            x, g = torch.randn(6, 19), torch.randn(6, 11).bfloat16()
            want = grads(half, x.bfloat16(), g)
            given = x.clone().requires_grad_()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = layer(given)
                self.assertEqual(y.dtype, torch.bfloat16)
            y.backward(g)  # outside
            self.assertTrue(torch.equal(y, want[0]))
            for tensor in (given.grad, layer.weight.grad, layer.bias.grad):
                self.assertEqual(tensor.dtype, torch.float32)
            self.assertTrue(torch.equal(given.grad, want[1].float()))
            # The layer's gradients are float32 sums; those of the bfloat16 layer are rounded.
            self.assertTrue(torch.equal(layer.weight.grad.bfloat16(), want[2]))
            with torch.autocast("cpu", dtype=torch.bfloat16):
                self.assertTrue(torch.equal(layer(x.bfloat16()), y))
            self.assertEqual(layer(x).dtype, torch.float32)

    def test_a_float32_x_has_the_bits_of_its_rounding(self):
        """Where x itself is not kept for backward, the library rounds a float32 x to bfloat16 as it reads it.
        """
        x, g = torch.randn(40, 19), torch.randn(40, 11).bfloat16()
        x[3, 4], x[5, 6] = float("nan"), float("inf")
        blocks = sb.SwitchBackLinear(19, 11, mode="rowwise", dw="int8_block")
        for layer in (*self.layers(), blocks):
            results = []
            for given in (x, x.t().contiguous().t(), x.bfloat16()):
                layer.zero_grad()
                given = given.detach().requires_grad_()
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    y = layer(given)
                    with torch.no_grad():
                        self.assertTrue(torch.equal(layer(given).nan_to_num(), y.nan_to_num()))
                y.backward(g)
                self.assertIs(given.grad.dtype, given.dtype)
                results.append([y, given.grad.bfloat16(), layer.weight.grad, layer.bias.grad])
            for other in results[:-1]:
                for a, b in zip(other, results[-1]):
                    self.assertTrue(torch.equal(a.nan_to_num(), b.nan_to_num()))
            with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
                y = layer(x)
                if layer.mode != "standard":  # a packed weight has another order of summation
                    layer.prepare_for_eval()
                self.assertTrue(torch.equal(layer(x).nan_to_num(), y.nan_to_num()))

    def test_a_float32_x_is_not_copied(self):
        layer = sb.SwitchBackLinear(19, 11, mode="rowwise", dw="int8_block")
        x, kept = torch.randn(40, 19), []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: kept.append(tensor.dtype) or tensor, lambda tensor: tensor
        ):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = layer(x.requires_grad_())
        self.assertNotIn(torch.bfloat16, kept)
        before = y.grad_fn.next_functions[0][0]
        self.assertIn("AccumulateGrad", before.name())  # the graph has x itself, not a cast of x

    def test_the_weight_is_followed(self):
        layer = sb.SwitchBackLinear(19, 11)
        x = torch.randn(6, 19)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            before = layer(x).detach()
            with torch.no_grad():
                layer.weight.mul_(2)
                layer.bias.mul_(2)
            self.assertTrue(torch.equal(layer(x), before * 2))


class Copies(Case):
    def test_deepcopy_and_pickle(self):
        for layer in self.layers():
            x, g = torch.randn(3, 19), torch.randn(3, 11)
            want = grads(layer, x, g)
            buffer = io.BytesIO()
            torch.save(layer, buffer)
            buffer.seek(0)
            options = {"weights_only": False} if torch_at_least(2, 0) else {}
            for twin in (
                copy.deepcopy(layer),
                pickle.loads(pickle.dumps(layer)),
                torch.load(buffer, **options),
            ):
                self.assertEqual(repr(twin), repr(layer))
                with torch.no_grad():
                    layer.weight.add_(1)  # the twin must have its own weight
                self.equal(grads(twin, x, g), want)
                with torch.no_grad():
                    layer.weight.copy_(twin.weight)

    def test_replicas(self):
        layer = sb.SwitchBackLinear(19, 11)
        x = torch.randn(3, 19)
        want = layer(x)
        replica = layer._replicate_for_data_parallel()
        self.assertIsNot(replica._layers, layer._layers)
        replica.weight, replica.bias = layer.weight.detach(), layer.bias.detach()
        self.assertTrue(torch.equal(replica(x), want))

    def test_nothing_is_left_behind(self):
        layer = sb.SwitchBackLinear(19, 11)
        layer(torch.randn(3, 19, requires_grad=True)).sum().backward()
        parts = [weakref.ref(part) for part in (layer, layer.weight, layer._layers)]
        parts += [weakref.ref(part) for part in layer._layers._layers.values()]
        del layer
        gc.collect()
        self.assertEqual([part() for part in parts], [None] * len(parts))


class PythonThreads(Case):
    def work(self, layers):
        jobs = [
            (layer, torch.randn(4 + i, 19), torch.randn(4 + i, 11))
            for i, layer in enumerate(layers)
        ]
        wants = [self.one(*job) for job in jobs]
        failures = []

        def loop(job, want):
            for _ in range(30):
                if not all(torch.equal(a, b) for a, b in zip(self.one(*job), want)):
                    failures.append(job[1].shape)

        threads = [threading.Thread(target=loop, args=pair) for pair in zip(jobs, wants)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    @staticmethod
    def one(layer, x, g):
        x = x.detach().requires_grad_()
        y = layer(x)
        return y, *torch.autograd.grad(y, [x, layer.weight, layer.bias], g)

    def test_modules_of_their_own(self):
        self.work([sb.SwitchBackLinear(19, 11), sb.SwitchBackLinearVectorwise(19, 11)])

    def test_one_module(self):
        for layer in self.layers():
            self.work([layer, layer])


if __name__ == "__main__":
    unittest.main()
