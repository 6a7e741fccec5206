# SPDX-License-Identifier: Apache-2.0
"""The layers as part of autograd's graphs: shapes, strides, hooks, checkpoints, autocast."""

import contextlib
import copy
import gc
import io
import itertools
import pickle
import threading
import unittest
import weakref
from unittest import mock

from support import TensorCase, compiled_calls, require_torch, results_of, torch_at_least

torch = require_torch()

from torch.utils.checkpoint import checkpoint  # noqa: E402

import switchback  # noqa: E402
from switchback import nn as sb  # noqa: E402
from switchback._tensors import HAS_OPERATORS  # noqa: E402
from switchback.nn import _fragmented, _grouped  # noqa: E402
from switchback.nn._layer import Layer  # noqa: E402

LAYERS = (
    (sb.SwitchBackLinear, {}),
    (sb.SwitchBackLinear, {"mem_efficient": True}),
    (sb.SwitchBackLinearVectorwise, {}),
    (sb.SwitchBackLinearVectorwise, {"mem_efficient": True}),
    (sb.StandardLinear, {}),
)


class Case(TensorCase):
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
                self.equal(a, b)

    def layers(self):
        return [make(19, 11, **options) for make, options in LAYERS]


class Shapes(Case):
    def test_leading_dimensions(self):
        for layer in self.layers():
            flat, g = torch.randn(24, 19), torch.randn(24, 11)
            want = results_of(layer, flat, g)
            for shape in ((2, 12), (2, 3, 4), (24, 1), (1, 1, 24)):
                got = results_of(layer, flat.reshape(*shape, 19), g.reshape(*shape, 11))
                self.equal([t.reshape(w.shape) for t, w in zip(got, want)], want)
            y = layer(flat[0])
            self.assertEqual(y.shape, (11,))
            if layer.mode != "standard":  # floating point sums of a single row are added in another order
                self.equal(y, want[0][0])

    def test_strides(self):
        """Views have the results of their contiguous copies."""
        wide, blocks, x = torch.randn(12, 40), torch.randn(2, 3, 30), torch.randn(6, 19)
        inputs = (
            wide[:6, 3:22],
            wide[::2, :19],
            torch.randn(19, 6).t(),
            torch.randn(1, 19).expand(6, 19),
            blocks[..., :19],
            torch.randn(3, 2, 19).transpose(0, 1),
        )
        gradients = (torch.randn(11, 6).t(), torch.randn(6, 22)[:, :11], torch.ones(()).expand(6, 11))
        pairs = [(given, torch.randn(*given.shape[:-1], 11)) for given in inputs]
        pairs += [(x, g) for g in gradients]
        for layer, (given, g) in itertools.product(self.layers(), pairs):
            want = results_of(layer, given.contiguous(), g.contiguous())
            self.same(layer, results_of(layer, given, g), want)

    def test_empty_batch(self):
        for layer in self.layers():
            for shape in ((0,), (2, 0), (0, 3)):
                got = results_of(layer, torch.randn(*shape, 19), torch.randn(*shape, 11))
                self.assertEqual([tuple(t.shape) for t in got[:2]], [(*shape, 11), (*shape, 19)])
                self.assertTrue((got[2] == 0).all() and (got[3] == 0).all())


class Graphs(Case):
    def test_twice_in_one_graph(self):
        for layer in self.layers():
            a, b = torch.randn(3, 19), torch.randn(5, 19)
            ga, gb = torch.randn(3, 11), torch.randn(5, 11)
            first, second = results_of(layer, a, ga), results_of(layer, b, gb)
            layer.zero_grad()
            xa, xb = a.clone().requires_grad_(), b.clone().requires_grad_()
            ya, yb = layer(xa), layer(xb)
            torch.autograd.backward([ya, yb], [ga, gb])
            self.equal([ya, xa.grad, yb, xb.grad], [*first[:2], *second[:2]])
            for parameter, one, other in zip((layer.weight, layer.bias), first[2:], second[2:]):
                self.equal(parameter.grad, one + other)

    def test_no_second_derivative(self):
        layer = sb.SwitchBackLinear(4, 4)
        x = torch.randn(2, 4, requires_grad=True)
        for _ in range(2):  # twice, because compiled code takes over from the second call on
            (dx,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
            with self.assertRaisesRegex(RuntimeError, "switchback has no second derivative"):
                dx.sum().backward()

    def test_no_forward_mode(self):
        layers = (
            sb.SwitchBackLinear(4, 4),
            sb.SwitchBackLinear(4, 4).requires_grad_(False),
            sb.SwitchBackLinear(4, 4).prepare_for_eval(),
        )
        x = torch.randn(2, 4)
        for layer in layers:
            want = layer(x).detach()
            with torch.autograd.forward_ad.dual_level(), torch.no_grad():
                with self.assertRaisesRegex(RuntimeError, "forward mode.*switchback"):
                    layer(torch.autograd.forward_ad.make_dual(x, x))
                self.equal(layer(x), want)

    def test_checkpointing(self):
        for layer in self.layers():
            x, g = torch.randn(3, 19), torch.randn(3, 11)
            want = results_of(layer, x, g)
            for reentrant in (True, False):
                again = lambda t, r=reentrant, m=layer: checkpoint(m, t, use_reentrant=r)  # noqa: E731
                self.equal(results_of(layer, x, g, again), want)

    def test_saved_tensor_hooks(self):
        for layer in self.layers():
            x, g = torch.randn(3, 19), torch.randn(3, 11)
            want = results_of(layer, x, g)
            packed = []

            def pack(tensor, packed=packed):
                packed.append(tensor)
                return tensor.clone().numpy()  # another object with other memory

            with torch.autograd.graph.saved_tensors_hooks(pack, torch.from_numpy):
                self.equal(results_of(layer, x, g), want)
            self.assertTrue(packed)
            if layer.mem_efficient:
                kinds = {t.dtype for t in packed if t.shape == (3, 19)}
                self.assertEqual(kinds, {torch.int8})  # the input itself is not saved

    def test_changes_in_place_are_noticed(self):
        for layer in self.layers():
            inner = torch.randn(3, 19, requires_grad=True)
            for _ in range(2):  # twice, because compiled code takes over from the second call on
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
            want = results_of(layer, x, g)
            for wants_dx in (True, False):
                layer.zero_grad(set_to_none=True)
                given = x.clone().requires_grad_(wants_dx)
                y = layer(given)
                switchback.set_num_threads(1)
                y.backward(g)
                self.equal(layer.weight.grad, want[2])
                if wants_dx:
                    self.equal(given.grad, want[1])

    def test_gradients_off(self):
        for layer in self.layers():
            x = torch.randn(3, 19)
            want = layer(x).detach()
            for off in (torch.no_grad, torch.inference_mode):
                with off():
                    y = layer(x)
                self.assertFalse(y.requires_grad)
                self.equal(y, want)
            self.assertFalse(layer.requires_grad_(False)(x).requires_grad)


@contextlib.contextmanager
def gradients_made():
    """Records which gradients the library computes in each backward, as letters: "xwb" are dx, dw and db.

    A fragmented layer has "w" for all its weights.
    """
    made = []
    linear, grouped = Layer.backward, _grouped._GroupedLayer.grouped_backward
    fragmented = _fragmented._FragmentedLayer.gradients

    def record(*grads):
        made.append("".join(letter for letter, grad in zip("xwb", grads) if grad is not None))

    def of_linear(self, g, rows, stride, dx, dw, db, *rest):
        record(dx, dw, db)
        return linear(self, g, rows, stride, dx, dw, db, *rest)

    def of_groups(self, g, x, offs, index, dx, dw, db):
        record(dx, dw, db)
        return grouped(self, g, x, offs, index, dx, dw, db)

    def of_fragments(self, g, x, dx, of_weights):
        record(dx, next((d for d in of_weights if d is not None), None))
        return fragmented(self, g, x, dx, of_weights)

    def of_compiled_code(name, result):
        if name == "backward":
            record(*result)

    with contextlib.ExitStack() as stack:
        stack.enter_context(compiled_calls(of_compiled_code))
        for owner, name, function in (
            (Layer, "backward", of_linear),
            (_grouped._GroupedLayer, "grouped_backward", of_groups),
            (_fragmented._FragmentedLayer, "gradients", of_fragments),
        ):
            stack.enter_context(mock.patch.object(owner, name, function))
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

                def forget_gradients(operands=operands):
                    for operand in operands.values():
                        operand.grad = None

                forget_gradients()
                with gradients_made() as made:
                    got = torch.autograd.grad(y, given, g, retain_graph=True)
                    self.assertEqual(made, [wanted])
                    y.backward(g, inputs=given, retain_graph=True)
                    self.assertEqual(made, [wanted, wanted])
                self.equal(got, [want[name] for name in wanted])
                self.equal([operand.grad for operand in given], got)
                forget_gradients()
                for name, operand in operands.items():
                    operand.requires_grad_(name in wanted)
                with gradients_made() as made:
                    layer(x).backward(g)
                self.assertEqual(made, [wanted])
                self.equal([operand.grad for operand in given], got)
                for operand in operands.values():
                    operand.requires_grad_()
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
                with gradients_made() as made:
                    got = torch.autograd.grad(y, [x], g, retain_graph=True)
                self.assertEqual(set(made), {"x"})
                with gradients_made() as made:
                    got += torch.autograd.grad(y, weights, g, retain_graph=True)
                # The last record is that of the first layer.
                self.assertEqual(made[-1], "w" if name == "fragmented" else "wb")
                self.equal(got, want)
                for place, wanted in enumerate((x, *weights)):
                    for operand in (x, *weights):
                        operand.requires_grad_(operand is wanted)
                    self.equal(torch.autograd.grad((call or module)(x), [wanted], g), want[place : place + 1])

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
        from switchback.nn import _operators

        x, w = torch.randn(4, 19, requires_grad=True), torch.randn(11, 19, requires_grad=True)
        y = torch.ops.switchback.linear(x, w, None, "mode=rowwise")
        want = torch.autograd.grad(y.sum(), [x, w], retain_graph=True)
        for wanted, place in (("x", 0), ("w", 1)):
            with gradients_made() as made, mock.patch.object(_operators, "native", None):
                got = torch.autograd.grad(y.sum(), [(x, w)[place]], retain_graph=True)
            self.assertEqual(made, [wanted])
            self.equal(got, want[place : place + 1])


def autocast(layer, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return layer(x)


class Autocast(Case):
    def test_bfloat16(self):
        """The results are those of a bfloat16 layer. Where x itself is not kept for backward, the library
        rounds a float32 x to bfloat16 as it reads it."""
        x, g = torch.randn(40, 19), torch.randn(40, 11).bfloat16()
        x[3, 4], x[5, 6] = float("nan"), float("inf")
        blocks = sb.SwitchBackLinear(19, 11, mode="rowwise", dw="int8_block")
        for layer in (*self.layers(), blocks):
            half = copy.deepcopy(layer).bfloat16()
            with torch.no_grad():
                half.bias.zero_()
                layer.bias.zero_()  # the bias stays float32 in this layer
                layer.weight.copy_(half.weight)  # codes are made from the float32 weight
            want = [t.nan_to_num() for t in results_of(half, x.bfloat16(), g)]
            for given in (x, x.t().contiguous().t(), x.bfloat16()):
                got = results_of(layer, given, g, lambda t, m=layer: autocast(m, t))
                dtypes = [torch.bfloat16, given.dtype, torch.float32, torch.float32]
                self.assertEqual([t.dtype for t in got], dtypes)
                # The gradients of parameters are float32 sums; those of the bfloat16 layer are rounded.
                self.equal([t.bfloat16().nan_to_num() for t in got], want)
                with torch.no_grad():
                    self.equal(autocast(layer, given).nan_to_num(), want[0])
            if layer.mode != "standard":  # a packed weight has another order of summation
                self.equal(autocast(layer.prepare_for_eval(), x).nan_to_num(), want[0])

    def test_a_float32_x_is_not_copied(self):
        layer = sb.SwitchBackLinear(19, 11, mode="rowwise", dw="int8_block")
        x, kept = torch.randn(40, 19), []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: kept.append(tensor.dtype) or tensor, lambda tensor: tensor
        ):
            y = autocast(layer, x.requires_grad_())
        self.assertNotIn(torch.bfloat16, kept)
        before = y.grad_fn.next_functions[0][0]
        self.assertIn("AccumulateGrad", before.name())  # the graph has x itself, not a cast of x


class Copies(Case):
    def test_deepcopy_and_pickle(self):
        for layer in self.layers():
            x, g = torch.randn(3, 19), torch.randn(3, 11)
            want = results_of(layer, x, g)
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
                self.equal(results_of(twin, x, g), want)
                with torch.no_grad():
                    layer.weight.copy_(twin.weight)

    def test_replicas(self):
        layer = sb.SwitchBackLinear(19, 11)
        x = torch.randn(3, 19)
        want = layer(x)
        replica = layer._replicate_for_data_parallel()
        self.assertIsNot(replica._layers, layer._layers)
        replica.weight, replica.bias = layer.weight.detach(), layer.bias.detach()
        self.equal(replica(x), want)

    def test_nothing_is_left_behind(self):
        layer = sb.SwitchBackLinear(19, 11)
        layer(torch.randn(3, 19, requires_grad=True)).sum().backward()
        parts = [weakref.ref(part) for part in (layer, layer.weight, layer._layers)]
        parts += [weakref.ref(part) for part in layer._layers._layers.values()]
        del layer
        gc.collect()
        self.assertEqual([part() for part in parts], [None] * len(parts))


class PythonThreads(Case):
    def results(self, layer, x, g):
        y = layer(x)
        return y, *torch.autograd.grad(y, [x, layer.weight, layer.bias], g)

    def run_at_once(self, layers):
        jobs = [
            (layer, torch.randn(4 + i, 19, requires_grad=True), torch.randn(4 + i, 11))
            for i, layer in enumerate(layers)
        ]
        wants = [self.results(*job) for job in jobs]
        failures = []

        def work(job, want):
            for _ in range(30):
                if not all(map(torch.equal, self.results(*job), want)):
                    failures.append(job[1].shape)

        threads = [threading.Thread(target=work, args=pair) for pair in zip(jobs, wants)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_one_module_or_several(self):
        self.run_at_once([sb.SwitchBackLinear(19, 11), sb.SwitchBackLinearVectorwise(19, 11)])
        for layer in self.layers():
            self.run_at_once([layer, layer])


if __name__ == "__main__":
    unittest.main()
