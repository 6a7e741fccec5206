# SPDX-License-Identifier: Apache-2.0
"""SwitchBackGroupedLinear: it has the bits of separate layers; its gradients, and changes of its weight."""

import copy
import itertools
import pickle
import unittest

from support import TensorCase, require_torch, results_of

torch = require_torch()

import switchback  # noqa: E402
from switchback._tensors import HAS_OPERATORS  # noqa: E402
from switchback import nn as sb  # noqa: E402

G, K, N, T = 4, 19, 11, 7
ENDS = (5, 5, 6, 13)  # ends of the groups; the second group is empty
INDEX = (0, 2, 3, 5, 6, 1, 0, 1, 2, 3, 4, 5, 6, 100, -1)  # the last two rows belong to no group
M, USED = len(INDEX), ENDS[-1]
MODES = ("rowwise", "global", "standard")
ROTATED = 32  # in_features of layers that may be rotated
OPTIONS = (
    {"mode": "rowwise_shared"},
    {"mode": "rowwise", "rotation": 16},
    {"mode": "rowwise", "dw": "int8_block"},
    {"mode": "global", "rotation": 16, "dw": "int8_block", "dw_block_rows": 128},
    {"mode": "rowwise_shared", "rotation": 16, "dw": "int8_block", "dw_block_rows": 128},
)
# Numbers of rows of x, ends of groups, and indices. Long groups have more rows than a block of codes for
# int8 dW; the last row belongs to no group.
CASES = {
    "groups": (T, ENDS, INDEX),
    "long groups": (37, (150, 150, 151, 420), (*(row * 5 % 37 for row in range(420)), 99)),
    "one group": (T, (USED,), INDEX),
    "without an index": (M, ENDS, None),
}


def ends(*values):
    return torch.tensor(values, dtype=torch.int32)


def layers_of(grouped):
    """Creates a SwitchBackLinear for each group of a grouped layer, with the group's parameters."""
    made = []
    for g in range(grouped.groups):
        one = sb.SwitchBackLinear(
            grouped.in_features,
            grouped.out_features,
            grouped.bias is not None,
            dtype=grouped.weight.dtype,
            mode=grouped.mode,
            rotation=grouped.rotation,
            dw=grouped.dw,
            dw_block_rows=grouped.dw_block_rows,
        )
        state = {"weight": grouped.weight.detach()[g]}
        if grouped.bias is not None:
            state["bias"] = grouped.bias.detach()[g]
        one.load_state_dict(state)
        made.append(one)
    return made


class Case(TensorCase):
    def setUp(self):
        super().setUp()
        self.offs, self.index = ends(*ENDS), torch.tensor(INDEX)
        self.x, self.g = torch.randn(T, K), torch.randn(M, N)

    def same_dw(self, layer, i, one, terms=0):
        got, want = layer.weight.grad[i], one.weight.grad
        if layer.dw == "int8_block":
            self.equal(got, want)
        else:
            self.near(got, want, max(terms, ROTATED))

    def near(self, got, want, terms=ROTATED):
        """Asserts that floating point products are equal, except that they may be added in another order.

        One rounding for each term of a sum of products of normal numbers, |sum| < 100. Results in
        bfloat16 may round to the next number, 2^-7 of it.
        """
        self.assertEqual((got.shape, got.dtype), (want.shape, want.dtype))
        error = terms * 2**-24 * 100
        if got.dtype is not torch.float32:
            error = error + 2**-7 * want.abs().float()
        self.assertTrue(((got.float() - want.float()).abs() <= error).all())


class Bits(Case):
    """A grouped layer has the results of a loop over separate layers."""

    def test_a_loop_of_layers(self):
        for mode, dtype, bias in itertools.product(
            MODES, (torch.float32, torch.bfloat16, torch.float16), (True, False)
        ):
            with self.subTest(mode=mode, dtype=dtype, bias=bias):
                self.check(sb.SwitchBackGroupedLinear(G, K, N, bias, dtype=dtype, mode=mode))

    def test_options(self):
        for options, dtype, (name, case) in itertools.product(
            ({"mode": "rowwise"}, *OPTIONS), (torch.float32, torch.bfloat16), CASES.items()
        ):
            with self.subTest(name, **options, dtype=dtype):
                groups = len(case[1])
                layer = sb.SwitchBackGroupedLinear(groups, ROTATED, N, dtype=dtype, **options)
                self.check(layer, *case)

    def test_autocast(self):
        for options in ({}, {"mode": "global"}, *OPTIONS):
            with self.subTest(**options):
                layer = sb.SwitchBackGroupedLinear(G, ROTATED, N, **options)
                self.check(layer, dtype_of_autocast=torch.bfloat16)

    def check(self, layer, count=T, group_ends=ENDS, index=INDEX, dtype_of_autocast=None):
        """Compares with a loop over separate layers. Without an index, row i of y reads row i of x."""
        same = self.near if layer.mode == "standard" else self.equal
        dtype, k = layer.weight.dtype, layer.in_features
        of_y = dtype_of_autocast or dtype
        rows_of_x = torch.arange(count) if index is None else torch.tensor(index)
        operands = (ends(*group_ends),) if index is None else (ends(*group_ends), rows_of_x)
        x, g = torch.randn(count, k).to(dtype).requires_grad_(), torch.randn(len(rows_of_x), N).to(of_y)

        def call(module, *operands):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype_of_autocast is not None):
                return module(*operands)

        y = call(layer, x, *operands)
        y.backward(g)
        begin, dx = 0, torch.zeros(count, k)
        for i, (one, end) in enumerate(zip(layers_of(layer), group_ends)):
            rows = rows_of_x[begin:end]
            inputs = x.detach()[rows].requires_grad_()
            want = call(one, inputs)
            want.backward(g[begin:end])
            same(y[begin:end], want)
            # The gradient of x adds in the order of the rows of y.
            for row, gradient in zip(rows, inputs.grad):
                dx[row] += gradient.float()
            self.same_dw(layer, i, one, end - begin)
            if layer.bias is not None:
                self.equal(layer.bias.grad[i], one.bias.grad)
            begin = end
        same(x.grad, dx.to(of_y).to(dtype))
        self.assertFalse(y[group_ends[-1] :].any())
        with torch.no_grad():
            self.equal(call(layer, x, *operands), y)
            self.equal(call(layer.eval(), x, *(operand.int() for operand in operands)), y)

    def test_strides(self):
        layer = sb.SwitchBackGroupedLinear(G, K, N)
        want = layer(self.x, self.offs, self.index)
        wide = torch.zeros(T, 2 * K)
        wide[:, :K] = self.x
        self.equal(layer(wide[:, :K], self.offs, self.index), want)
        self.equal(layer(self.x.t().contiguous().t(), self.offs, self.index), want)
        other = torch.stack([self.offs, self.offs + 1], 1)[:, 0]
        self.equal(layer(self.x, other, self.index), want)

    def test_empty(self):
        layer = sb.SwitchBackGroupedLinear(G, K, N)
        for rows in (0, 3):  # no rows, or rows that belong to no group
            x = torch.randn(rows, K, requires_grad=True)
            y = layer(x, ends(0, 0, 0, 0))
            self.assertEqual(y.shape, (rows, N))
            y.sum().backward()
            self.assertFalse(y.any() or x.grad.any() or layer.weight.grad.any())
            self.assertFalse(layer.bias.grad.any())


class Autograd(Case):
    def test_numbers_that_change_before_backward(self):
        layer = sb.SwitchBackGroupedLinear(G, K, N)
        y = layer(self.x, self.offs, self.index.int())
        self.offs[0] = 2
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            y.sum().backward()

    def test_autocast_in_mode_standard(self):
        layer = sb.SwitchBackGroupedLinear(G, K, N, bias=False, mode="standard")
        x = self.x.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = layer(x, self.offs, self.index)
        twin = copy.deepcopy(layer).bfloat16()
        self.equal(y, twin(self.x.bfloat16(), self.offs, self.index))
        y.sum().backward()
        self.assertIs(x.grad.dtype, torch.float32)
        self.assertIs(layer.weight.grad.dtype, torch.float32)


class Weight(Case):
    def fresh(self, layer):
        """The result of a new module with the same weight, which has never had another weight."""
        twin = sb.SwitchBackGroupedLinear(G, K, N, mode=layer.mode)
        twin.load_state_dict(layer.state_dict())
        return twin(self.x, self.offs, self.index)

    def test_changes_are_noticed(self):
        def another(layer):
            layer.weight = torch.nn.Parameter(torch.randn(G, K, N).transpose(1, 2))

        changes = {
            "in place": lambda layer: layer.weight[2].mul_(2),
            "past autograd": lambda layer: layer.weight.data[3, 4, 5].add_(7),
            "another weight": another,
            "past autograd, with strides": lambda layer: layer.weight.data[3, 4, 5].add_(7),
            "bias": lambda layer: layer.bias.data.add_(1),
        }
        for mode, training in itertools.product(("rowwise", "global"), (True, False)):
            layer = sb.SwitchBackGroupedLinear(G, K, N, mode=mode).train(training)
            for name, change in changes.items():
                with self.subTest(change=name, mode=mode, training=training):
                    with torch.no_grad():
                        for _ in range(2):
                            layer(self.x, self.offs, self.index)
                        change(layer)
                    self.equal(layer(self.x, self.offs, self.index), self.fresh(layer))
                    with torch.no_grad():
                        self.equal(layer(self.x, self.offs, self.index), self.fresh(layer))

    def test_reuse_of_codes(self):
        layer = sb.SwitchBackGroupedLinear(G, K, N).eval()
        with torch.no_grad(), sb.reuse_weight_codes():
            stale = layer(self.x, self.offs, self.index)
            layer.weight.data.mul_(2)
            # Inside reuse_weight_codes() the change is not noticed, as documented.
            self.equal(layer(self.x, self.offs, self.index), stale)
            layer.weight_updated()
            self.equal(layer(self.x, self.offs, self.index), self.fresh(layer))
        self.assertGreater(layer._layers.cached_bytes(), 0)
        layer.to(torch.bfloat16)
        self.assertEqual(layer._layers.cached_bytes(), 0)

    def test_copies_and_pickles(self):
        layer = sb.SwitchBackGroupedLinear(G, K, N, mode="global")
        want = layer(self.x, self.offs, self.index)
        for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            self.equal(twin(self.x, self.offs, self.index), want)
            twin.weight.data.zero_()
            self.equal(layer(self.x, self.offs, self.index), want)
        self.assertEqual(set(layer.state_dict()), {"weight", "bias"})
        self.assertEqual(layer.state_dict()["weight"].shape, (G, N, K))


class Errors(Case):
    def test_arguments_of_the_module(self):
        for arguments, text in (
            ((0, K, N), "groups = 0"),
            ((G, 0, N), "in_features = 0"),
            ((G, K, -1), "out_features = -1"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                sb.SwitchBackGroupedLinear(*arguments)
        for options, text in (
            ({"mode": "fast"}, "mode = 'fast'"),
            ({"rotation": 16}, "in_features = 19; it must be a multiple of rotation, 16"),
            ({"dw": "int8_block", "dw_block_rows": 64}, "dw_block_rows = 64"),
        ):
            with self.assertRaisesRegex(ValueError, f"SwitchBackGroupedLinear: .*{text}"):
                sb.SwitchBackGroupedLinear(G, K, N, **options)
        layer = sb.SwitchBackGroupedLinear(
            G, ROTATED, N, mode="global", rotation=16, dw="int8_block", dw_block_rows=128
        )
        self.assertIn("mode=global, rotation=16, dw=int8_block, dw_block_rows=128", repr(layer))

    def test_operands(self):
        layer = sb.SwitchBackGroupedLinear(G, K, N)
        x, offs, index = self.x, self.offs, self.index
        bad = index.clone()
        bad[3] = T
        for arguments, kind, text in (
            ((x[:, 1:], offs, index), ValueError, "its last dimension must be in_features = 19"),
            ((x[None], offs, index), ValueError, r"it must be \[rows, in_features\]"),
            ((x.double(), offs, index), TypeError, "x has dtype torch.float64"),
            ((x.bfloat16(), offs, index), TypeError, "they must be the same"),
            ((x, offs[1:], index), ValueError, "offs has 3 ends; the layer has 4 groups"),
            ((x, offs.long(), index), TypeError, "offs has dtype torch.int64"),
            ((x, list(ENDS), index), TypeError, "offs is a list"),
            ((x, offs[None], index), ValueError, "offs has shape"),
            ((x, offs, index.float()), TypeError, "index has dtype torch.float32"),
            ((x, offs, bad), ValueError, r"x.index\[3\] = 7"),
            ((x, offs, index[:9]), ValueError, r"groups.ends\[3\] = 13"),
            ((x, ends(5, 4, 6, 13), index), ValueError, r"groups.ends\[1\] = 4"),
            ((x, offs), ValueError, r"groups.ends\[3\] = 13"),
        ):
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                layer(*arguments)
        with self.assertRaises(switchback.InvalidArgument):
            layer(x, offs)


@unittest.skipUnless(HAS_OPERATORS, "this torch has no operators")
class Operator(Case):
    def test_activations(self):
        layer = sb.SwitchBackGroupedLinear(G, ROTATED, N)
        operands = torch.randn(USED, ROTATED), layer.weight.detach(), layer.bias.detach()
        g = self.g[:USED]
        for options in (
            "mode=rowwise,activation=gelu_tanh",
            "mode=rowwise_shared,activation=gelu_erf,rotation=16,dw=int8_block",
        ):
            with self.subTest(options):
                y, dx, dw, db = self.of_groups(operands, g, options)
                begin = 0
                for i, end in enumerate(ENDS):
                    given = [operands[0][begin:end], operands[1][i], operands[2][i]]
                    given = [operand.clone().requires_grad_() for operand in given]
                    want = torch.ops.switchback.linear(*given, options)
                    grads = torch.autograd.grad(want, given, g[begin:end])
                    self.equal(y[begin:end], want)
                    self.equal(dx[begin:end], grads[0])
                    (self.equal if "int8" in options else self.near)(dw[i], grads[1])
                    self.equal(db[i], grads[2])
                    begin = end
                # With a frozen weight, backward still reads x, for the gradient of the activation.
                self.equal(self.of_groups(operands, g, options, trains=1)[1], dx)

    def of_groups(self, operands, g, options, trains=3):
        """Runs the operator; returns y, and the gradients of the first `trains` operands."""
        given = [operand.clone() for operand in operands]
        wanted = [operand.requires_grad_() for operand in given[:trains]]
        y = torch.ops.switchback.grouped_linear(*given, self.offs, None, None, options)
        return y, *torch.autograd.grad(y, wanted, g)

    def test_options_of_a_compiled_module(self):
        x = torch.randn(T, ROTATED)
        for options in OPTIONS[-2:]:
            with self.subTest(**options):
                torch._dynamo.reset()
                layer = sb.SwitchBackGroupedLinear(G, ROTATED, N, **options)
                compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
                eager, got = (
                    results_of(layer, x, self.g, lambda x, m=module: m(x, self.offs, self.index))
                    for module in (layer, compiled)
                )
                self.equal(got, eager)

    def test_what_groups_do_not_have(self):
        weight = torch.randn(G, N, K)
        for options in ("mode=rowwise,transposed=1", "mode=rowwise,rounding=stochastic"):
            with self.assertRaisesRegex(ValueError, f"options = '{options}'; with groups"):
                torch.ops.switchback.grouped_linear(
                    self.x, weight, None, self.offs, self.index, None, options
                )


class Combining(TensorCase):
    def test_unused_places_take_nothing_from_rows_that_are_not_finite(self):
        from switchback.nn._grouped import combine

        for value in (float("nan"), float("inf")):
            y = torch.randn(3, 8)
            y[2] = value
            y.requires_grad_()
            weights = torch.rand(2, 2, requires_grad=True)
            slots = torch.tensor([[0, -1], [1, -1]], dtype=torch.int32)
            out = combine(y, slots, weights)
            g = torch.randn(2, 8)
            out.backward(g)
            self.equal(weights.grad[:, 1], torch.zeros(2))
            self.assertTrue(torch.allclose(weights.grad[:, 0], (g * y.detach()[:2]).sum(-1)))
            self.equal(y.grad[2], torch.zeros(8))


if __name__ == "__main__":
    unittest.main()
