# SPDX-License-Identifier: Apache-2.0
"""SwitchBackExperts and replace_experts, compared with loops over experts as models have them."""

import copy
import pickle
import unittest
import warnings

from support import TensorCase, relative_error, require_torch

torch = require_torch()

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from switchback import nn as sb  # noqa: E402

E, H, WIDE, T, TOP = 5, 16, 24, 9, 2


class MLP(nn.Module):
    """A gated MLP; its subclass has the other names of the projections that models use."""

    names = ("gate_proj", "up_proj", "down_proj")

    def __init__(self, bias=False, make=nn.Linear):
        super().__init__()
        for name, shape in zip(self.names, ((H, WIDE), (H, WIDE), (WIDE, H))):
            self.add_module(name, make(*shape, bias=bias))
        self.act_fn = nn.SiLU()

    def forward(self, x):
        gate, up, down = (getattr(self, name) for name in self.names)
        return down(self.act_fn(gate(x)) * up(x))


class MixtralMLP(MLP):
    names = ("w1", "w3", "w2")


def loop(experts, x, index, weights):
    """The reference: the weighted sum of each token's experts, in order of choice and in float32."""
    total = torch.zeros(x.shape, dtype=torch.float32)
    for choice in range(index.shape[1]):
        term = torch.zeros_like(total)
        for e, expert in enumerate(experts):
            tokens = (index[:, choice] == e).nonzero().flatten()
            if tokens.numel():
                y = expert(x[tokens]).float() * weights[tokens, choice, None].float()
                term = term.index_copy(0, tokens, y)
        total = total + term if choice else term
    return total.to(x.dtype)


class OwnForward(nn.ModuleList):
    """A list of experts with its own forward, as in transformers 4.57."""

    def forward(self, hidden_states, top_k_index, top_k_weights):
        return loop(self, hidden_states, top_k_index, top_k_weights)


class Parameters(nn.Module):
    """Experts whose weights are joined to one Parameter, as in transformers 5."""

    def __init__(self):
        super().__init__()
        self.num_experts = E
        self.gate_up_proj = nn.Parameter(torch.randn(E, 2 * WIDE, H) / 4)
        self.down_proj = nn.Parameter(torch.randn(E, H, WIDE) / 5)
        self.act_fn = nn.SiLU()

    def forward(self, hidden_states, top_k_index, top_k_weights):
        def expert(e):
            def run(x):
                gate, up = functional.linear(x, self.gate_up_proj[e]).chunk(2, -1)
                return functional.linear(self.act_fn(gate) * up, self.down_proj[e])

            return run

        return loop([expert(e) for e in range(E)], hidden_states, top_k_index, top_k_weights)


class _LoopingBlock(nn.Module):
    """A block that loops over its experts, as in transformers 4 up to 4.56."""

    expert = MLP

    def __init__(self):
        super().__init__()
        self.top_k = TOP
        self.gate = nn.Linear(H, E, bias=False)
        self.experts = nn.ModuleList([self.expert() for _ in range(E)])

    def forward(self, hidden_states):
        x = hidden_states.reshape(-1, H)
        logits = self.gate(x)
        weights, index = torch.topk(functional.softmax(logits, dim=1, dtype=torch.float), TOP, -1)
        if getattr(self, "norm_topk_prob", True):
            weights = weights / weights.sum(-1, keepdim=True)
        y = loop(self.experts, x, index, weights.to(x.dtype))
        if hasattr(self, "shared_expert"):
            y = y + torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        return y.reshape(hidden_states.shape), logits


class MixtralSparseMoeBlock(_LoopingBlock):
    expert = MixtralMLP


class Qwen2MoeSparseMoeBlock(_LoopingBlock):
    def __init__(self):
        super().__init__()
        self.norm_topk_prob = False
        self.shared_expert = MLP()
        self.shared_expert_gate = nn.Linear(H, 1, bias=False)


class AnotherBlock(_LoopingBlock):
    pass


class Case(TensorCase):
    def setUp(self):
        super().setUp()
        self.x = torch.randn(T, H)
        self.index = torch.stack([torch.randperm(E - 1)[:TOP] for _ in range(T)])
        self.weights = torch.rand(T, TOP)


class Experts(Case):
    def filled(self, mode, dtype, bias=False):
        """Creates SwitchBackExperts, and a list of separate switchback layers with the same weights."""
        options = {"dtype": dtype, "mode": mode}
        # ReLU, because the bits of torch's SiLU depend on the place of an element in its tensor.
        made = sb.SwitchBackExperts(E, H, WIDE, bias=bias, activation=torch.relu, **options)
        single = nn.ModuleList()
        for e in range(E):
            one = MLP(bias, lambda *a, **k: sb.SwitchBackLinear(*a, **k, **options))
            one.act_fn = nn.ReLU()
            for name in MLP.names:
                for kind, parameter in getattr(made, name).named_parameters():
                    getattr(getattr(one, name), kind).data.copy_(parameter.detach()[e])
            single.append(one)
        return made, single

    def test_a_loop_of_layers(self):
        for mode in ("rowwise", "global"):
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(mode=mode, dtype=dtype):
                    made, single = self.filled(mode, dtype, bias=dtype is torch.float32)
                    x = self.x.to(dtype)
                    y = made(x, self.index, self.weights)
                    self.equal(y, loop(single, x, self.index, self.weights))

    def test_gradients(self):
        made, single = self.filled("rowwise", torch.float32, bias=True)
        inputs = []
        for forward in (made, lambda *a: loop(single, *a)):
            x, weights = self.x.clone().requires_grad_(), self.weights.clone().requires_grad_()
            forward(x, self.index, weights).square().sum().backward()
            inputs.append((x.grad, weights.grad))
        for got, want in zip(*inputs):
            # The products are the same; sums of a few terms may be added in another order.
            self.assertLess(relative_error(got, want), 1e-6)
        for name in MLP.names:
            for kind, parameter in getattr(made, name).named_parameters():
                grads = [getattr(getattr(one, name), kind).grad for one in single]
                grads = [torch.zeros_like(parameter[0]) if g is None else g for g in grads]
                # If a gradient differs by a rounding, its code may differ by one: 1/127 of the row's absmax.
                self.assertLess(relative_error(parameter.grad, torch.stack(grads)), 1e-2)
        self.assertFalse(made.down_proj.weight.grad[E - 1].any())  # no token chose this expert

    def test_shapes_and_no_expert(self):
        made, _ = self.filled("rowwise", torch.float32)
        want = made(self.x, self.index, self.weights)
        got = made(self.x.view(3, 3, H), self.index.int(), self.weights)
        self.equal(got, want.view(3, 3, H))
        self.assertEqual(made(self.x[:0], self.index[:0], self.weights[:0]).shape, (0, H))
        index = self.index.clone()
        index[:, 1] = E
        x, weights = self.x.clone().requires_grad_(), self.weights.clone().requires_grad_()
        y = made(x, index, weights)
        self.equal(y, made(x, index[:, :1], weights[:, :1].contiguous()))
        y.sum().backward()
        self.assertFalse(weights.grad[:, 1].any())
        none = torch.full_like(index, E)
        self.assertFalse(made(self.x, none, self.weights).any())

    def test_errors(self):
        made, _ = self.filled("rowwise", torch.float32)
        for arguments, kind, text in (
            ((self.x, self.index[1:], self.weights), ValueError, "top_k_index has shape"),
            ((self.x, self.index, self.weights[:, :1]), ValueError, "top_k_weights"),
            ((self.x, self.index.float(), self.weights), TypeError, "top_k_index has dtype"),
            ((self.x, self.index - 9, self.weights), ValueError, "top_k_index is from -9 to"),
            ((self.x, self.index + E, self.weights), ValueError, "the number of experts"),
        ):
            with self.subTest(text=text), self.assertRaisesRegex(kind, text):
                made(*arguments)
        with self.assertRaisesRegex(ValueError, "in_features = 24; it must be a multiple"):
            sb.SwitchBackExperts(E, H, WIDE, rotation=16)


class Replace(Case):
    def check(self, model, arguments):
        """Checks that a model computes nearly the same after replace_experts, and trains."""
        want = model(*arguments)
        before = {key: value.clone() for key, value in model.state_dict().items()}
        replaced = []
        self.assertIs(sb.replace_experts(model, replaced=replaced), model)
        self.assertEqual(replaced, ["experts"])
        self.assertIsInstance(model.experts, sb.SwitchBackExperts)
        got = model(*arguments)
        if isinstance(want, tuple):
            self.equal(got[1], want[1])
            got, want = got[0], want[0]
        self.assertLess(relative_error(got, want), 0.03)  # two int8 products, each with an error of about 1 %
        got.square().sum().backward()
        for key, parameter in model.named_parameters():
            self.assertTrue(parameter.grad is not None and parameter.grad.any(), key)
        return before

    def test_blocks_that_loop(self):
        for kind in (MixtralSparseMoeBlock, Qwen2MoeSparseMoeBlock):
            model = kind()
            before = self.check(model, (self.x.view(3, 3, H),))
            self.assertIsInstance(model, kind)
            got = model(self.x)[0]
            fresh = kind()
            sb.replace_experts(fresh)
            fresh.load_state_dict(before)  # of the list
            self.equal(fresh(self.x)[0], got)
            fresh.load_state_dict(model.state_dict())
            for twin in (fresh, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
                self.equal(twin(self.x)[0], got)

    def test_modules_with_a_forward(self):
        """Lists are copied; modules whose weights are joined keep their parameters."""

        class Model(nn.Module):
            def __init__(self, experts):
                super().__init__()
                self.experts = experts

            def forward(self, *arguments):
                return self.experts(*arguments)

        model = Model(OwnForward([MLP(bias=True) for _ in range(E - 1)])).eval()
        self.check(model, (self.x, self.index, self.weights))
        self.assertFalse(model.experts.training or model.experts.up_proj.training)
        model = Model(Parameters())
        parameters = list(model.parameters())
        self.check(model, (self.x, self.index, self.weights))
        self.assertTrue(all(a is b for a, b in zip(parameters, model.parameters())))

    def test_joined_weights_of_another_form_are_left_alone(self):
        class Clamped(Parameters):
            def _apply_gate(self, both):
                return both.clamp(-7, 7)

        self.assertIsInstance(sb.replace_experts(Parameters()), sb.SwitchBackExperts)
        concatenated, transposed = Parameters(), Parameters()
        concatenated.is_concatenated, transposed.is_transposed = False, True
        for other in (concatenated, transposed, Clamped()):
            self.assertIs(sb.replace_experts(other), other)

    def test_what_is_left_alone(self):
        model = AnotherBlock()
        with self.assertWarnsRegex(UserWarning, "did not replace 'experts'"):
            sb.replace_experts(model)
        self.assertIs(type(model), AnotherBlock)
        self.assertIs(type(model.experts), nn.ModuleList)
        plain = nn.Sequential(nn.ModuleList([nn.Linear(3, 4)]), nn.ModuleList())
        uneven = OwnForward([MLP(), MLP(bias=True)])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            sb.replace_experts(plain)
            sb.replace_experts(model, exclude="experts")
            self.assertIs(sb.replace_experts(uneven), uneven)
            known = MixtralSparseMoeBlock()
            sb.replace_experts(known, include="other.*")
        self.assertIs(type(known), MixtralSparseMoeBlock)

    def test_hooks_are_refused(self):
        model = MixtralSparseMoeBlock()
        model.experts[1].w2.register_forward_hook(lambda *a: None)
        with self.assertRaisesRegex(ValueError, "'experts.1.w2' has hooks in _forward_hooks"):
            sb.replace_experts(model)
        self.assertIs(type(model.experts), nn.ModuleList)

    def test_options(self):
        for model in (MixtralSparseMoeBlock(), nn.Sequential(Parameters())):
            experts = [type(module) for module in model.modules()]
            with self.assertRaisesRegex(ValueError, "in_features = 24; it must be a multiple"):
                sb.replace_experts(model, rotation=16)
            self.assertEqual([type(module) for module in model.modules()], experts)
            sb.replace_experts(model, mode="rowwise_shared", rotation=4, dw="int8_block")
            layers = [m for m in model.modules() if isinstance(m, sb.SwitchBackGroupedLinear)]
            found = {(layer.mode, layer.rotation, layer.dw) for layer in layers}
            self.assertEqual(found, {("rowwise_shared", 4, "int8_block")})

    def test_transformers(self):
        try:
            from transformers import MixtralConfig, MixtralForCausalLM
        except ImportError as error:
            raise unittest.SkipTest(f"transformers is not installed: {error}") from error
        config = MixtralConfig(
            vocab_size=50,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            num_local_experts=4,
        )
        model = MixtralForCausalLM(config).eval()
        tokens = torch.randint(0, 50, (2, 7))
        with torch.no_grad():
            want = model(tokens).logits
            replaced = []
            sb.replace_experts(model, replaced=replaced)
            self.assertEqual(len(replaced), 2)
            # The difference would be larger if roundings sent a token to another expert.
            self.assertLess(relative_error(model(tokens).logits, want), 0.1)


if __name__ == "__main__":
    unittest.main()
