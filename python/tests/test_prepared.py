# SPDX-License-Identifier: Apache-2.0
"""The method prepare_for_eval, and checkpoints with int8 codes or float weights."""

import collections
import copy
import datetime
import io
import itertools
import tempfile
import threading
import unittest

import numpy as np
from support import quantize_rows, relative_error, require_torch

torch = require_torch()

import switchback  # noqa: E402
from switchback import nn as sb  # noqa: E402
from switchback.nn import _rules  # noqa: E402

K, N = 19, 11
KINDS = (sb.SwitchBackLinear, sb.SwitchBackLinearGlobalMemEfficient, sb.SwitchBackLinearVectorwise)


def through_a_file(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer)


def broadcast_of(test):
    """A function that writes a tensor as another process would: a broadcast between two gloo ranks of this
    process. A thread of gloo writes it."""
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    distributed, groups = torch.distributed, [None, None]

    def connect(rank):
        store = distributed.FileStore(f"{folder.name}/store", 2)
        wait = datetime.timedelta(seconds=60)
        groups[rank] = distributed.ProcessGroupGloo(store, rank, 2, wait)

    threads = [threading.Thread(target=connect, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    def broadcast(tensor, new):
        for work in [groups[0].broadcast([new.clone()]), groups[1].broadcast([tensor])]:
            work.wait()

    return broadcast


class Prepared(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(4, K)

    def test_form_and_outputs(self):
        for make in KINDS:
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                layer = make(K, N, dtype=dtype).eval()
                x = self.x.to(dtype)
                weight = layer.weight.detach().clone()
                with torch.no_grad():
                    want = layer(x)
                    self.assertIs(layer.prepare_for_eval(), layer)
                    self.assertTrue(torch.equal(layer(x), want))
                    self.assertTrue(layer.is_prepared)
                state = layer.state_dict()
                self.assertEqual(set(state), {"W_int8", "state_W", "bias", "weight"})
                count = N if layer.mode == "rowwise" else 1
                for name, form in (
                    ("W_int8", (torch.int8, (N, K))),
                    ("state_W", (torch.float32, (count,))),
                ):
                    self.assertEqual((state[name].dtype, state[name].shape), form)
                self.assertEqual([n for n, _ in layer.named_parameters()], ["bias"])
                self.assertIn("prepared_for_eval", repr(layer))
                if layer.mode == "rowwise":
                    q, absmax = quantize_rows(weight.float().numpy())
                    self.assertTrue(torch.equal(state["W_int8"], torch.from_numpy(q)))
                    self.assertTrue(torch.equal(state["state_W"], torch.from_numpy(absmax)))
                codes = layer.W_int8
                layer.prepare_for_eval()  # a second call does nothing
                self.assertIs(layer.W_int8, codes)

    def test_any_input_dtype(self):
        layer = sb.SwitchBackLinearVectorwise(K, N).eval().prepare_for_eval()
        with torch.no_grad():
            want = layer(self.x)
            for dtype, error in ((torch.float16, 2.0**-11), (torch.bfloat16, 2.0**-8)):
                y = layer(self.x.to(dtype))
                self.assertEqual(y.dtype, dtype)
                # x is rounded, and then y: each by `error` of its size. The sum over K of |x||w| bounds the
                # error from x. In addition, a code may change by one.
                bound = 2 * (error + 2 / 127) * (self.x.abs().sum(1, keepdim=True) * 0.25 + 1)
                self.assertTrue(((y.float() - want).abs() <= bound).all())
            with torch.autocast("cpu", dtype=torch.bfloat16):
                self.assertTrue(torch.equal(layer(self.x), y))
            self.assertEqual(layer(self.x[:0]).shape, (0, N))

    def test_under_autocast_codes_are_those_of_the_float32_weight(self):
        """Under autocast, codes are made from the float32 weight, not from its rounding: they are those of
        a prepared layer."""
        for mode in ("rowwise", "rowwise_shared", "global"):
            layer = sb.SwitchBackLinear(K, N, mode=mode)
            prepared = copy.deepcopy(layer).prepare_for_eval()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                recorded = layer(self.x)
                with torch.no_grad():
                    inferred, want = layer(self.x), prepared(self.x)
            self.assertEqual(recorded.dtype, torch.bfloat16)
            self.assertTrue(torch.equal(recorded, want))
            self.assertTrue(torch.equal(inferred, want))
            recorded.sum().backward()
            self.assertEqual(layer.weight.grad.dtype, torch.float32)

    def test_casts_leave_scales_alone(self):
        layer = sb.SwitchBackLinearVectorwise(K, N).eval().prepare_for_eval()
        scales = layer.state_W.clone()
        with torch.no_grad():
            want = layer(self.x.half())
        for cast in (layer.half, layer.double, layer.float, lambda: layer.to("cpu")):
            cast()
            self.assertEqual(layer.W_int8.dtype, torch.int8)
            self.assertEqual(layer.state_W.dtype, torch.float32)
            self.assertTrue(torch.equal(layer.state_W, scales))
        layer.half()
        self.assertEqual(layer.bias.dtype, torch.float16)
        with torch.no_grad():
            error = (layer(self.x.half()) - want).abs().max()
            self.assertLess(float(error), 2e-3)  # the rounding of the bias

    def test_changes_of_codes_reach_the_next_call(self):
        """Every change of the codes must reach the next call, also changes that torch does not count."""
        changes = {
            "copy_": lambda tensor, new: tensor.copy_(new),
            ".data": lambda tensor, new: tensor.data.copy_(new),
            "_foreach_copy_ of .data": lambda tensor, new: torch._foreach_copy_([tensor.data], [new]),
            "numpy": lambda tensor, new: np.copyto(tensor.numpy(), new.numpy()),
        }
        if not hasattr(torch, "_foreach_copy_"):
            del changes["_foreach_copy_ of .data"]
        if hasattr(torch.distributed, "ProcessGroupGloo"):
            changes["a collective"] = broadcast_of(self)
        for mode, (name, change) in itertools.product(("rowwise", "global"), changes.items()):
            layer, other = (sb.SwitchBackLinear(K, N, mode=mode).eval() for _ in range(2))
            for each in (layer, other):
                each.prepare_for_eval()
            with torch.no_grad(), self.subTest(mode=mode, by=name):
                before = layer(self.x)
                for part in ("W_int8", "state_W", "bias"):
                    for _ in range(2):
                        layer(self.x)  # twice, so that each path to the library is used
                    change(getattr(layer, part).detach(), getattr(other, part).detach())
                    changed = layer(self.x)
                    self.assertFalse(torch.equal(changed, before))
                    self.assertTrue(torch.equal(changed, copy.deepcopy(layer)(self.x)))
                    before = changed
                self.assertTrue(torch.equal(before, other(self.x)))

    def test_changes_of_codes_between_the_passes(self):
        for mode in ("rowwise", "global"):
            layer, other = (
                sb.SwitchBackLinear(K, N, mode=mode).requires_grad_(False).prepare_for_eval()
                for _ in range(2)
            )
            x = self.x.clone().requires_grad_()
            for _ in range(3):
                y = layer(x)
                layer.W_int8.data.copy_(other.W_int8)
                layer.state_W.data.copy_(other.state_W)
                (got,) = torch.autograd.grad(y.sum(), x)
                (want,) = torch.autograd.grad(other(x).sum(), x)
                self.assertTrue(torch.equal(got, want))
                other.W_int8.neg_()

    def test_changes_of_codes_that_are_not_contiguous(self):
        layer = sb.SwitchBackLinearVectorwise(K, N, bias=False).prepare_for_eval()
        layer.W_int8 = layer.W_int8.t().contiguous().t()
        layer.state_W = layer.state_W.repeat_interleave(2)[::2]
        with torch.no_grad():
            for part in ("W_int8", "state_W"):
                for _ in range(2):
                    before = layer(self.x)
                getattr(layer, part).data.neg_()
                self.assertTrue(torch.equal(layer(self.x), -before))

    def test_changes_of_inference_tensors(self):
        layer = sb.SwitchBackLinearVectorwise(K, N, bias=False).prepare_for_eval()
        with torch.inference_mode():
            layer.W_int8 = layer.W_int8.clone()
            for _ in range(2):
                before = layer(self.x)
            layer.W_int8.neg_()
            self.assertTrue(torch.equal(layer(self.x), -before))

    def test_few_rows_of_large_codes(self):
        """Few rows read the module's codes: with the same bits as the library's copy of them, which is then
        not made."""
        k, n = 2048, 1040
        self.assertGreaterEqual(k * n, _rules.MANY_CODES)
        kinds = [{"mode": mode} for mode in ("rowwise", "rowwise_shared", "global")]
        kinds += [{"mode": "rowwise", "rotation": rotation} for rotation in (4, 256)]
        for options, bias, dtype in itertools.product(kinds, (True, False), (torch.float32, torch.bfloat16)):
            layer = sb.SwitchBackLinear(k, n, bias=bias, dtype=dtype, **options).eval()
            layer.prepare_for_eval()
            for rows in (1, _rules.FEW_ROWS, _rules.FEW_ROWS + 1):
                x = torch.randn(rows, k).to(dtype)
                with torch.no_grad(), self.subTest(rows=rows, bias=bias, dtype=dtype, **options):
                    y = layer(x)
                    copied = layer._layers.cached_bytes() > 0
                    self.assertEqual(copied, rows > _rules.FEW_ROWS)
                    with sb.reuse_weight_codes():
                        self.assertTrue(torch.equal(copy.deepcopy(layer)(x), y))
                    self.assertTrue(torch.equal(layer(x.reshape(1, rows, k)), y.reshape(1, rows, n)))
                    layer.W_int8.data.neg_()
                    if bias:
                        layer.bias.data.neg_()
                    self.assertTrue(torch.equal(layer(x), -y))

    def test_codes_of_others_reach_minus_128(self):
        """Codes of -128, which other programs write, compared with sums in 64 bits."""
        for mode, rotation in itertools.product(("rowwise", "global"), (0, 16)):
            layer = sb.SwitchBackLinear(64, N, bias=False, mode=mode, rotation=rotation)
            layer.prepare_for_eval()
            codes = torch.randint(-128, 128, (N, 64), dtype=torch.int8)
            codes[2] = -128
            scales = torch.rand(layer.state_W.shape)
            layer.load_state_dict({"W_int8": codes, "state_W": scales})
            x = torch.randn(3, 64, requires_grad=True)
            q, absmax = switchback.quantize_rowwise(
                switchback.rotate(x.detach(), rotation) if rotation else x.detach()
            )
            sums = q.long() @ codes.long().T
            c = torch.tensor(1 / (127 * 127), dtype=torch.float32)
            want = scales * (absmax[:, None] * (sums.float() * c))
            y = layer(x)
            self.assertTrue(torch.equal(y, want))
            with torch.no_grad():  # without autograd, calls take another path to the library
                self.assertTrue(torch.equal(layer(x), want))
            self.assertEqual(int(layer.W_int8.min()), -128)

    def test_input_gradients_are_those_of_the_separate_operations(self):
        features = 64
        for mode, rotation, dtype in itertools.product(
            ("rowwise", "rowwise_shared", "global"),
            (0, 16),
            (torch.float32, torch.float16, torch.bfloat16),
        ):
            layer = sb.SwitchBackLinear(features, N, dtype=dtype, mode=mode, rotation=rotation)
            layer.prepare_for_eval()
            lowest = layer.W_int8.clone().index_fill_(0, torch.tensor([3]), -128)
            for codes in (layer.W_int8, lowest):
                layer.W_int8 = codes
                x = torch.randn(2, 7, features, dtype=dtype, requires_grad=True)
                g = torch.randn(2, 7, 2 * N, dtype=dtype)[..., :N]  # g has gaps between its rows
                layer(x).backward(g)
                scaled = g.reshape(-1, N).float()
                unit = layer.state_W
                if unit.numel() > 1:
                    scaled, unit = scaled * unit, unit.new_ones(1)
                q, scale = switchback.quantize_rowwise(scaled)
                made = torch.float32 if rotation else dtype
                want = switchback.gemm_dequantize(q, codes.t().contiguous(), scale, unit, None, made)
                if rotation:
                    want = switchback.rotate(want, rotation).to(dtype)
                self.assertTrue(torch.equal(x.grad, want.view(x.shape)), (mode, rotation, dtype))

    def test_gradients_after_the_codes_were_replaced(self):
        """A graph keeps the codes with which it was recorded; later calls of the layer use the new ones."""
        layer = sb.SwitchBackLinear(K, N, mode="rowwise").prepare_for_eval()
        x, g = self.x.clone().requires_grad_(), torch.randn(4, N)
        (want,) = torch.autograd.grad(layer(x), x, g)
        y = layer(x)
        before = y.detach().clone()
        codes, layer.W_int8 = layer.W_int8, layer.W_int8.neg()
        self.assertTrue(torch.equal(torch.autograd.grad(layer(x), x, g)[0], -want))
        self.assertTrue(torch.equal(torch.autograd.grad(y, x, g)[0], want))
        self.assertTrue(torch.equal(torch.autograd.grad(layer(x), x, g)[0], -want))
        layer.W_int8 = codes
        y = layer(x)
        self.assertTrue(torch.equal(y, before))  # includes the bias
        torch.autograd.grad(y, x, g)
        self.assertTrue(torch.equal(layer(x), before))

    def test_one_int8_weight_for_both(self):
        """In modes global and rowwise_shared, training and a prepared layer give the same input gradient."""
        g = torch.randn(4, N)
        for mode, dtype in itertools.product(
            ("global", "rowwise_shared"), (torch.float32, torch.bfloat16)
        ):
            layer = sb.SwitchBackLinear(K, N, dtype=dtype, mode=mode)
            weight = layer.weight.detach().float()

            def step(layer=layer, dtype=dtype):
                x = self.x.to(dtype, copy=True).requires_grad_()
                layer.zero_grad()
                y = layer(x)
                y.backward(g.to(dtype))
                return y.detach(), x.grad, layer.bias.grad

            want = step()
            self.assertLess(relative_error(want[1].float(), g @ weight), 0.02)
            layer.prepare_for_eval()
            for one, other in zip(step(), want):
                self.assertEqual((one.dtype, one.shape), (dtype, other.shape))
                self.assertTrue(torch.equal(one, other))
        layer.requires_grad_(False)
        self.assertFalse(layer(self.x).requires_grad)

    def test_prepared_in_inference_mode(self):
        layer = sb.SwitchBackLinear(K, N).eval()
        with torch.inference_mode():
            layer.prepare_for_eval()
        self.assertFalse(layer.W_int8.is_inference())
        with torch.no_grad():
            layer(self.x)

    def test_modes_that_keep_the_float_weight(self):
        for layer in (sb.StandardLinear(K, N), sb.SwitchBackLinear(K, N, mode="auto")):
            want = layer(self.x)
            layer.prepare_for_eval()
            self.assertFalse(layer.is_prepared)
            self.assertTrue(torch.equal(layer(self.x), want))


class Checkpoints(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(4, K)

    def model(self, make):
        layers = make(K, 16), torch.nn.ReLU(), make(16, N)
        return torch.nn.Sequential(collections.OrderedDict(zip(("first", "act", "last"), layers)))

    def test_prepared_into_float_and_back(self):
        for make in KINDS:
            model, fresh = self.model(make), self.model(make)
            floats = through_a_file(model.state_dict())
            with torch.no_grad():
                want = model(self.x)
                fresh(self.x)
            for layer in (model.first, model.last):
                layer.prepare_for_eval()
            codes = through_a_file(model.state_dict())
            self.assertEqual(str(fresh.load_state_dict(codes)), "<All keys matched successfully>")
            self.assertTrue(torch.equal(fresh(self.x), want))
            self.assertEqual(set(fresh.state_dict()), set(codes))
            fresh.load_state_dict(codes)  # loads codes into a layer that is already prepared
            self.assertEqual(str(fresh.load_state_dict(floats)), "<All keys matched successfully>")
            self.assertEqual(set(fresh.state_dict()), set(floats))
            y = fresh(self.x)
            self.assertTrue(torch.equal(y, want))
            y.sum().backward()  # the layer can be trained again
            self.assertIsNotNone(fresh.first.weight.grad)

    def test_float_dtype_after_prepared(self):
        layer = sb.SwitchBackLinear(K, N, dtype=torch.bfloat16)
        floats = through_a_file(layer.state_dict())
        layer.prepare_for_eval()
        layer.load_state_dict(floats)
        self.assertEqual(layer.weight.dtype, torch.bfloat16)
        layer.prepare_for_eval()
        layer.float()
        layer.load_state_dict(floats)
        self.assertEqual((layer.weight.dtype, layer.bias.dtype), (torch.float32,) * 2)

    def test_scales_as_others_wrote_them(self):
        for make, shapes in (
            (sb.SwitchBackLinear, ((), (1,), (1, 1))),
            (sb.SwitchBackLinearVectorwise, ((N,), (N, 1))),
        ):
            source = make(K, N).eval().prepare_for_eval()
            for shape in shapes:
                for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
                    given = source.state_W.reshape(shape).to(dtype)
                    state = {**source.state_dict(), "state_W": given}
                    layer = make(K, N)
                    layer.load_state_dict(state)
                    self.assertEqual(layer.state_W.dtype, torch.float32)
                    self.assertTrue(torch.equal(layer.state_W, given.float().reshape(-1)))
                    # The caller's state_dict is not changed.
                    self.assertIs(state["state_W"], given)
                    layer(self.x)

    def test_what_does_not_fit(self):
        good = sb.SwitchBackLinearVectorwise(K, N).prepare_for_eval().state_dict()

        def rejected(words, make=sb.SwitchBackLinearVectorwise, **changes):
            state = {**good, **changes}
            state = {key: value for key, value in state.items() if value is not None}
            layer = make(K, N)
            before = layer(self.x)
            with self.assertRaises(RuntimeError) as caught:
                layer.load_state_dict(state)
            for word in words:
                self.assertIn(word, str(caught.exception))
            self.assertFalse(layer.is_prepared)
            self.assertTrue(torch.equal(layer(self.x), before))

        rejected(("W_int8", "(11, 18)"), W_int8=torch.zeros(N, K - 1, dtype=torch.int8))
        rejected(("W_int8", "torch.float32"), W_int8=torch.zeros(N, K))
        rejected(("state_W", "(3,)", "11"), state_W=torch.zeros(3))
        rejected(("state_W", "torch.int32"), state_W=torch.zeros(N, dtype=torch.int32))
        rejected(("state_W", "SwitchBackLinearGlobal"), state_W=torch.zeros(1))
        rejected(("state_W", "SwitchBackLinearVectorwise"), sb.SwitchBackLinear)
        rejected(("Missing", "state_W"), state_W=None)
        rejected(("Missing", "W_int8"), W_int8=None)
        # A checkpoint with codes and a float weight is treated as a float one; a layer without codes
        # rejects codes.
        for make, state in (
            (sb.SwitchBackLinearVectorwise, {**good, "weight": torch.zeros(N, K)}),
            (sb.StandardLinear, good),
        ):
            with self.assertRaisesRegex(RuntimeError, "Unexpected.*W_int8"):
                make(K, N).load_state_dict(state)

    def test_strict_off_and_partial(self):
        layer = sb.SwitchBackLinear(K, N)
        result = layer.load_state_dict({"bias": torch.zeros(N)}, strict=False)
        self.assertEqual(result.missing_keys, ["weight"])
        layer.prepare_for_eval()
        result = layer.load_state_dict({"bias": torch.ones(N)}, strict=False)
        self.assertEqual(set(result.missing_keys), {"W_int8", "state_W"})
        self.assertTrue(layer.is_prepared)

    def test_assign(self):
        layer = sb.SwitchBackLinear(K, N).prepare_for_eval()
        fresh = sb.SwitchBackLinear(K, N, device="meta")
        try:
            fresh.load_state_dict(layer.state_dict(), assign=True)
        except TypeError:
            self.skipTest("this torch cannot assign")
        with torch.no_grad():
            self.assertTrue(torch.equal(fresh(self.x), layer(self.x)))


if __name__ == "__main__":
    unittest.main()
