# SPDX-License-Identifier: Apache-2.0
"""The function fuse_qkv: layers with the same input, computed as one layer."""

import copy
import io
import threading
import unittest
import warnings

from support import relative_error, require_torch

torch = require_torch()
from torch import nn  # noqa: E402

import switchback.nn as sb  # noqa: E402
from switchback._tensors import HAS_OPERATORS, TORCH_VERSION  # noqa: E402
from switchback.nn._joined import Joined, _hooks  # noqa: E402

MODES = ("rowwise", "rowwise_shared")


class Attention(nn.Module):
    def __init__(self, width=64, inner=(64, 32, 32), bias=True):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, n, bias=bias) for n in inner)

    def forward(self, x, memory=None):
        memory = x if memory is None else memory
        return self.q_proj(x), self.k_proj(memory), self.v_proj(memory)


def made(mode="rowwise", fuse=True, **options):
    """Creates an attention with fused projections, and its copy whose projections compute separately."""
    torch.manual_seed(0)
    bias = options.pop("bias", True)
    apart = sb.replace_linear(Attention(bias=bias), mode=mode, **options)
    joined = copy.deepcopy(apart)
    return (sb.fuse_qkv(joined) if fuse else joined), apart


def joined_of(model) -> Joined:
    return model.q_proj._joined


class counted:
    """Counts how often the joined projections are computed."""

    def __init__(self, model):
        self.joined = joined_of(model)

    def __enter__(self):
        self.calls, self._compute = 0, self.joined._compute

        def compute(*arguments):
            self.calls += 1
            return self._compute(*arguments)

        self.joined._compute = compute
        return self

    def __exit__(self, *_):
        del self.joined._compute


def trained(model, x, gs, **autocast):
    """Runs forward and backward; returns the output of each projection, and all gradients."""
    model.zero_grad()
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, **autocast):
        ys = model(x)
    torch.autograd.backward(ys, [g.to(y.dtype) for g, y in zip(gs, ys)])
    return [y.detach() for y in ys], x.grad, {n: p.grad for n, p in model.named_parameters()}


class FuseQkv(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(2, 150, 64)
        self.gs = [torch.randn(2, 150, n) for n in (64, 32, 32)]

    def check(self, joined, apart, autocast):
        with counted(joined) as count:
            got = trained(joined, self.x, self.gs, enabled=autocast)
        want = trained(apart, self.x, self.gs, enabled=autocast)
        self.assertEqual(count.calls, 1)
        for a, b in zip(got[0], want[0]):
            self.assertTrue(torch.equal(a, b))
            self.assertFalse(a._is_view())
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
                            for name, gradient in want[2].items():
                                self.assertTrue(torch.equal(got[2][name], gradient), name)

    def test_without_gradients(self):
        for mode in MODES:
            joined, apart = made(mode)
            with torch.no_grad(), counted(joined) as count:
                for model in (joined.eval(), joined.train()):
                    for a, b in zip(model(self.x), apart(self.x)):
                        self.assertTrue(torch.equal(a, b))
            self.assertEqual(count.calls, 2)

    def test_steps_of_an_optimizer(self):
        for foreach in (False, True):
            joined, apart = made("rowwise_shared")
            # The gradients of parameters do not depend on dX, which alone is rounded differently, so the
            # models stay nearly equal.
            for model in (joined, apart):
                optimizer = torch.optim.AdamW(model.parameters(), 1e-2, foreach=foreach)
                for _ in range(4):
                    optimizer.zero_grad()
                    for y, g in zip(model(self.x), self.gs):
                        (y * g).sum().backward(retain_graph=True)
                    optimizer.step()
            for a, b in zip(joined(self.x), apart(self.x)):
                self.assertLess(relative_error(a, b), 1e-4)

    def test_changes_are_seen(self):
        joined, apart = made()
        changes = {
            "in place": lambda p: p.mul_(0.5),
            "data": lambda p: p.data.mul_(3.0),
            "numpy": lambda p: p.detach().numpy().__imul__(0.5),
        }
        with torch.no_grad():
            for mode in (True, False):
                for name, change in changes.items():
                    for part in ("k_proj.weight", "v_proj.bias"):
                        for model in (joined.train(mode), apart):
                            model(self.x)
                            change(model.get_parameter(part))
                        for a, b in zip(joined(self.x), apart(self.x)):
                            self.assertTrue(torch.equal(a, b), (name, part))

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
        for a, b in zip(joined.parameters(), apart.parameters()):
            self.assertLess(relative_error(a.grad, b.grad), 1e-5)

    def test_outputs_that_nothing_reads(self):
        joined, apart = made()
        for model in (joined, apart):
            model(self.x)[1].sum().backward()
        self.assertIsNone(joined.q_proj.weight.grad)
        for a, b in zip(joined.k_proj.parameters(), apart.k_proj.parameters()):
            self.assertLess(relative_error(a.grad, b.grad), 1e-5)

    def test_outputs_change_in_place(self):
        joined, apart = made()
        results = []
        for model in (joined, apart):
            q, k, v = model(self.x)
            q.mul_(2.0)
            (q.sum() + k.square().sum() + v.sum()).backward()
            results.append([p.grad for p in model.parameters()])
        for a, b in zip(*results):
            self.assertLess(relative_error(a, b), 1e-5)

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

    def test_second_derivatives_are_refused(self):
        joined, _ = made()
        y = joined(self.x.requires_grad_())[0]
        (dx,) = torch.autograd.grad(y.sum(), self.x, create_graph=True)
        with self.assertRaises(RuntimeError):
            dx.sum().backward()

    def test_cross_attention_is_left_alone(self):
        joined, apart = made()
        memory = torch.randn(2, 20, 64)
        with counted(joined) as count:
            for _ in range(5):
                for a, b in zip(joined(self.x, memory), apart(self.x, memory)):
                    self.assertTrue(torch.equal(a, b))
        self.assertLess(count.calls, 5)
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
                for a, b in zip(*found):
                    self.assertLess(relative_error(a, b), 0.02)  # dX is rounded once, or three times
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
            for a, b in zip(*gradients):
                self.assertTrue(torch.equal(a, b))

    def test_copies_pickles_and_moves(self):
        joined, apart = made()
        want = apart(self.x)
        file = io.BytesIO()
        torch.save(joined, file)
        file.seek(0)
        options = {"weights_only": False} if TORCH_VERSION >= (2, 0) else {}
        loaded = torch.load(file, **options)
        copied = copy.deepcopy(joined)
        for model in (loaded, copied):
            self.assertIsNot(joined_of(model), joined_of(joined))
            self.assertIs(joined_of(model).members[1], model.k_proj)
            for again in (False, True):
                if again:
                    sb.fuse_qkv(model)
                for a, b in zip(model(self.x), want):
                    self.assertTrue(torch.equal(a, b))
        with counted(copied) as count:
            copied(self.x)
        self.assertEqual(count.calls, 1)
        self.check(sb.fuse_qkv(joined.to(torch.bfloat16).float()), apart.to(torch.bfloat16).float(), False)
        for a, b in zip(joined.to(torch.bfloat16)(self.x.bfloat16()), apart.bfloat16()(self.x.bfloat16())):
            self.assertTrue(torch.equal(a, b))

    def test_checkpoints(self):
        joined, apart = made()
        joined(self.x)
        state = {name: tensor * 2 for name, tensor in apart.state_dict().items()}
        self.assertEqual(list(joined.state_dict()), list(state))
        for model in (joined, apart):
            model.load_state_dict(state)
        for a, b in zip(joined(self.x), apart(self.x)):
            self.assertTrue(torch.equal(a, b))
        self.assertIsNotNone(joined_of(joined).whole([m.weight for m in joined.children()]))

    def test_prepared(self):
        joined, apart = made()
        want = apart(self.x)
        sb.prepare_for_eval(joined)
        for a, b in zip(joined(self.x), want):
            self.assertTrue(torch.equal(a, b))

    def test_threads(self):
        joined, apart = made()
        xs = [torch.randn(40, 64) for _ in range(4)]
        wants = [apart(x) for x in xs]
        wrong = []

        def work(x, want):
            for _ in range(10):
                if not all(torch.equal(a, b) for a, b in zip(joined(x), want)):
                    wrong.append(1)

        threads = [threading.Thread(target=work, args=pair) for pair in zip(xs, wants)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    @unittest.skipUnless(HAS_OPERATORS, "operators need torch 2.4")
    def test_compiled(self):
        joined, apart = made()
        with counted(joined) as count:
            compiled = torch.compile(joined, fullgraph=True, backend="aot_eager")
            for a, b in zip(compiled(self.x), apart(self.x)):
                self.assertTrue(torch.equal(a, b))
        self.assertEqual(count.calls, 0)

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
