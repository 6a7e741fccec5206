# SPDX-License-Identifier: Apache-2.0
"""The function fuse_qkv: layers with the same input, computed as one layer."""

import copy
import itertools
import pickle
import unittest
import warnings
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

from support import TensorCase, relative_error, require_torch

torch = require_torch()
from torch import nn  # noqa: E402

import switchback.nn as sb  # noqa: E402
from switchback._tensors import HAS_OPERATORS, TORCH_VERSION  # noqa: E402
from switchback.nn._joined import Joined, _hooks  # noqa: E402

MODES = ("rowwise", "rowwise_shared")


class Attention(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(64, n, bias=bias) for n in (64, 32, 32))

    def forward(self, x, memory=None):
        memory = x if memory is None else memory
        return self.q_proj(x), self.k_proj(memory), self.v_proj(memory)


def made(mode="rowwise", bias=True, **options):
    """Creates an attention with fused projections, and its copy whose projections compute separately."""
    torch.manual_seed(0)
    apart = sb.replace_linear(Attention(bias=bias), mode=mode, **options)
    return sb.fuse_qkv(copy.deepcopy(apart)), apart


def joined_of(model) -> Joined:
    return model.q_proj._joined


def counted(model):
    """Counts how often the joined projections are computed: the call_count of the result of `with`."""
    joined = joined_of(model)
    return mock.patch.object(joined, "_compute", wraps=joined._compute)


def trained(model, x, gs, **autocast):
    """Runs forward and backward; returns the output of each projection, and all gradients."""
    model.zero_grad()
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, **autocast):
        ys = model(x)
    torch.autograd.backward(ys, [g.to(y.dtype) for g, y in zip(gs, ys)])
    return [y.detach() for y in ys], x.grad, {n: p.grad for n, p in model.named_parameters()}


class FuseQkv(TensorCase):
    def setUp(self):
        super().setUp()
        self.x = torch.randn(2, 150, 64)
        self.gs = [torch.randn(2, 150, n) for n in (64, 32, 32)]

    def near(self, first, second, bound):
        for a, b in zip(first, second):
            self.assertLess(relative_error(a, b), bound)

    def check(self, joined, apart, autocast):
        with counted(joined) as count:
            got = trained(joined, self.x, self.gs, enabled=autocast)
        want = trained(apart, self.x, self.gs, enabled=autocast)
        self.assertEqual(count.call_count, 1)
        self.equal(got[0], want[0])
        self.assertFalse(any(y._is_view() for y in got[0]))
        # dX sums products of codes that have one scale for a row of all three gradients. A code's error is
        # 1/254 of the row's largest element, and the sum of three separate products has the same number of
        # errors.
        self.assertLess(relative_error(got[1], want[1]), 0.02)
        for name, gradient in want[2].items():
            self.assertLess(relative_error(got[2][name], gradient), 1e-6 if not autocast else 4e-3)
            self.assertIs(got[2][name].dtype, gradient.dtype)
        return got, want

    def test_results_are_those_of_separate_layers(self):
        for mode in MODES:
            for options in ({}, {"bias": False}, {"dw": "int8_block"}, {"mem_efficient": True}):
                for autocast in (False, True):
                    if autocast and TORCH_VERSION < (2, 0):
                        continue
                    with self.subTest(mode=mode, autocast=autocast, **options):
                        got, want = self.check(*made(mode, **options), autocast)
                        if "dw" in options:
                            self.equal(list(got[2].values()), list(want[2].values()))

    def test_without_gradients(self):
        for mode in MODES:
            joined, apart = made(mode)
            with torch.no_grad(), counted(joined) as count:
                self.equal(joined.eval()(self.x), apart(self.x))
            self.assertEqual(count.call_count, 1)

    def test_steps_of_an_optimizer(self):
        joined, apart = made("rowwise_shared")
        # The gradients of parameters do not depend on dX, which alone is rounded differently, so the models
        # stay nearly equal.
        for model in (joined, apart):
            optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
            for _ in range(4):
                optimizer.zero_grad()
                for y, g in zip(model(self.x), self.gs):
                    (y * g).sum().backward(retain_graph=True)
                optimizer.step()
        self.near(joined(self.x), apart(self.x), 1e-4)

    def test_changes_are_seen(self):
        joined, apart = made()
        changes = (
            lambda p: p.mul_(0.5),
            lambda p: p.data.mul_(3.0),
            lambda p: p.detach().numpy().__imul__(0.5),
        )
        parts = "k_proj.weight", "v_proj.bias"
        for mode, change, part in itertools.product((True, False), changes, parts):
            with torch.no_grad():
                for model in (joined.train(mode), apart):
                    model(self.x)
                    change(model.get_parameter(part))
                self.equal(joined(self.x), apart(self.x))

    def test_input_that_changes_between_the_calls(self):
        joined, apart = made()
        x = self.x.clone()
        with torch.no_grad():
            joined.q_proj(x)
            x.mul_(2.0)
            self.assertTrue(torch.equal(joined.k_proj(x), apart.k_proj(x)))
            joined.q_proj(x)
            joined.v_proj.weight.add_(1.0), apart.v_proj.weight.add_(1.0)
            self.assertTrue(torch.equal(joined.v_proj(x), apart.v_proj(x)))
        joined.q_proj(x)  # autograd records this call; outputs that wait from no_grad must not be used for it
        y = joined.k_proj(x)
        self.assertTrue(y.requires_grad)
        with torch.no_grad():
            self.assertFalse(joined.v_proj(x).requires_grad)

    def test_a_layer_again(self):
        joined, apart = made()
        for _ in range(2):
            self.assertTrue(torch.equal(joined.q_proj(self.x), apart.q_proj(self.x)))

    def test_backward_of_one_before_the_forward_of_the_next(self):
        joined, apart = made()
        for model in (joined, apart):
            for layer in (model.q_proj, model.k_proj, model.v_proj):
                layer(self.x).sum().backward()
        gradients = ([p.grad for p in model.parameters()] for model in (joined, apart))
        self.near(*gradients, 1e-5)

    def test_outputs_that_nothing_reads(self):
        joined, apart = made()
        for model in (joined, apart):
            model(self.x)[1].sum().backward()
        self.assertIsNone(joined.q_proj.weight.grad)
        gradients = ([p.grad for p in model.k_proj.parameters()] for model in (joined, apart))
        self.near(*gradients, 1e-5)

    def test_outputs_change_in_place(self):
        joined, apart = made()
        results = []
        for model in (joined, apart):
            q, k, v = model(self.x)
            q.mul_(2.0)
            (q.sum() + k.square().sum() + v.sum()).backward()
            results.append([p.grad for p in model.parameters()])
        self.near(*results, 1e-5)

    def test_weight_that_changes_before_backward(self):
        joined, _ = made()
        loss = sum(y.sum() for y in joined(self.x.requires_grad_()))
        with torch.no_grad():
            joined.k_proj.weight.mul_(2.0)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_frozen_parameters(self):
        joined, apart = made()
        for model in (joined, apart):
            model.q_proj.weight.requires_grad_(False)
            model.v_proj.bias.requires_grad_(False)
        got, want = (trained(m, self.x, self.gs, enabled=False) for m in (joined, apart))
        self.assertIsNone(got[2]["q_proj.weight"])
        self.assertIsNone(got[2]["v_proj.bias"])
        self.assertLess(relative_error(got[2]["k_proj.weight"], want[2]["k_proj.weight"]), 1e-6)
        for model in (joined, apart):
            model.requires_grad_(False)
        got, want = (trained(m, self.x, self.gs, enabled=False) for m in (joined, apart))
        self.assertLess(relative_error(got[1], want[1]), 0.02)

    def test_cross_attention_is_left_alone(self):
        joined, apart = made()
        memory = torch.randn(2, 20, 64)
        with counted(joined) as count:
            for _ in range(5):
                self.equal(joined(self.x, memory), apart(self.x, memory))
        self.assertLess(count.call_count, 5)
        joined.q_proj(self.x)
        self.assertIsNone(getattr(joined_of(joined)._local, "waiting", None))

    def test_checkpointing_where_inputs_differ(self):
        """With cross-attention, a checkpoint must save the same tensors when it repeats its forward."""
        from torch.utils.checkpoint import checkpoint

        for reentrant in (False, True):
            if not reentrant and _hooks is None:
                continue
            joined, apart = made(dw="int8_block")
            models = joined, apart
            for step in range(4):
                torch.manual_seed(step)
                x, memory = torch.randn(2, 10, 64), torch.randn(2, 7, 64)
                found = []
                for model in models:
                    model.zero_grad()
                    inputs = [t.clone().requires_grad_() for t in (x, memory)]
                    q, k, v = model.q_proj, model.k_proj, model.v_proj

                    def forward(x, memory, q=q, k=k, v=v):
                        scores = q(x)[..., :32] @ k(memory).transpose(-1, -2)
                        return torch.softmax(scores / 8, -1) @ v(memory)

                    for _ in range(2):  # microbatches
                        checkpoint(forward, *inputs, use_reentrant=reentrant).sum().backward()
                    found.append([t.grad for t in (*inputs, *model.parameters())])
                    with torch.no_grad():
                        for parameter in model.parameters():
                            parameter -= 0.01 * parameter.grad
                self.near(*found, 0.02)  # dX is rounded once, or three times
            self.assertTrue(joined_of(joined)._apart)

    def test_checkpointing(self):
        from torch.utils.checkpoint import checkpoint

        for reentrant in (False, True):
            joined, _ = made("rowwise_shared", dw="int8_block")
            gradients = []
            for around in (lambda f, x: f(x), lambda f, x: checkpoint(f, x, use_reentrant=reentrant)):
                joined.zero_grad()
                x = self.x.clone().requires_grad_()
                around(lambda x: sum(y.square().mean() for y in joined(x)), x).backward()
                gradients.append([x.grad, *(p.grad for p in joined.parameters())])
            self.equal(*gradients)

    def test_copies_pickles_and_moves(self):
        joined, apart = made()
        want = apart(self.x)
        copied = copy.deepcopy(joined)
        for model in (pickle.loads(pickle.dumps(joined)), copied):
            self.assertIsNot(joined_of(model), joined_of(joined))
            self.assertIs(joined_of(model).members[1], model.k_proj)
            self.equal(model(self.x), want)
            self.equal(sb.fuse_qkv(model)(self.x), want)
        with counted(copied) as count:
            copied(self.x)
        self.assertEqual(count.call_count, 1)
        joined, apart = (model.to(torch.bfloat16) for model in (joined, apart))
        self.equal(joined(self.x.bfloat16()), apart(self.x.bfloat16()))
        self.check(sb.fuse_qkv(joined.float()), apart.float(), False)

    def test_checkpoints(self):
        joined, apart = made()
        joined(self.x)
        state = {name: tensor * 2 for name, tensor in apart.state_dict().items()}
        self.assertEqual(list(joined.state_dict()), list(state))
        for model in (joined, apart):
            model.load_state_dict(state)
        self.equal(joined(self.x), apart(self.x))
        self.assertIsNotNone(joined_of(joined).whole([m.weight for m in joined.children()]))

    def test_prepared(self):
        joined, apart = made()
        want = apart(self.x)
        sb.prepare_for_eval(joined)
        self.equal(joined(self.x), want)

    def test_threads(self):
        joined, apart = made()
        xs = [torch.randn(40, 64) for _ in range(4)]

        def work(x, want):
            for _ in range(10):
                self.equal(joined(x), want)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, xs, map(apart, xs)))

    @unittest.skipUnless(HAS_OPERATORS, "operators need torch 2.4")
    def test_compiled(self):
        joined, apart = made()
        with counted(joined) as count:
            compiled = torch.compile(joined, fullgraph=True, backend="aot_eager")
            self.equal(compiled(self.x), apart(self.x))
        self.assertEqual(count.call_count, 0)

    def test_which(self):
        model = nn.ModuleDict({
            "a": sb.replace_linear(Attention(), mode="rowwise"),
            "b": Attention(),
            "c": sb.replace_linear(Attention(), mode="global"),
            "d": sb.prepare_for_eval(sb.replace_linear(Attention(), mode="rowwise")),
        })  # fmt: skip
        fused = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.assertIs(sb.fuse_qkv(model, fused=fused), model)
        self.assertEqual(fused, ["a"])
        self.assertRegex(str(caught[0].message), "fuse_qkv did not fuse 'c' .mode 'global'; it must be")
        self.assertRegex(str(caught[0].message), "'d' .a layer is prepared")
        names = []
        sb.fuse_qkv(model["a"], names=(("k_proj", "v_proj"),), fused=names)
        self.assertEqual(names, [""])


if __name__ == "__main__":
    unittest.main()
