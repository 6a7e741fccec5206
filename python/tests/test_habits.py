# SPDX-License-Identifier: Apache-2.0
"""What people do with models made of nn.Linear: tracing, second derivatives, torch's encoders."""

import copy
import pickle
import unittest

from look_alikes import Conv1D
from support import require_torch

torch = require_torch()

from switchback import nn as sb  # noqa: E402
from torch import fx, nn  # noqa: E402


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = sb.SwitchBackExperts(3, 16, 8)

    def forward(self, x):
        index = torch.arange(8).reshape(4, 2) % 3
        return self.experts(x, index, torch.full((4, 2), 0.5)) * 2


class Grouped(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = sb.SwitchBackGroupedLinear(2, 16, 8)

    def forward(self, x):
        return self.layer(x, torch.tensor([1, 4], dtype=torch.int32)) + 1


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        sb.replace_linear(self, sb.SwitchBackLinearVectorwise, attention=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0] + x


class Traced(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(4, 16)

    def models(self):
        yield nn.Sequential(sb.SwitchBackLinear(16, 8), nn.ReLU())
        yield nn.Sequential(sb.SwitchBackLinearVectorwise(16, 8)).eval()
        yield sb.prepare_for_eval(nn.Sequential(sb.SwitchBackLinearVectorwise(16, 8)))
        yield sb.replace_linear(nn.Sequential(Conv1D(8, 16), nn.Tanh()))
        yield nn.Sequential(sb.SwitchBackMLP(16, 32, 8), nn.ReLU())
        yield nn.Sequential(sb.SwitchBackLinear(16, 8), sb.GELU())
        yield nn.Sequential(sb.FragmentedLinear(16, 8, 4))
        yield Experts()
        yield Grouped()
        yield Attention()

    def test_layers_are_leaves_of_symbolic_trace(self):
        for model in self.models():
            with self.subTest(model=model):
                graph = fx.symbolic_trace(model)
                called = [n.target for n in graph.graph.nodes if n.op == "call_module"]
                first = next(name for name, _ in model.named_modules() if name)
                self.assertEqual(called[0], first)
                self.assertIs(graph.get_submodule(first), model.get_submodule(first))
                x = self.x if not isinstance(model, Attention) else self.x.reshape(2, 2, 16)
                self.assertTrue(torch.equal(graph(x), model(x)))
                for again in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
                    self.assertTrue(torch.equal(again(x), model(x)))

    def test_a_traced_model_trains(self):
        model = nn.Sequential(sb.SwitchBackLinear(16, 8), nn.ReLU(), sb.SwitchBackLinear(8, 3))
        graph = fx.symbolic_trace(copy.deepcopy(model))
        for one in (model, graph):
            one(self.x).square().sum().backward()
        for of_graph, of_model in zip(graph.parameters(), model.parameters()):
            self.assertTrue(torch.equal(of_graph.grad, of_model.grad))

    def test_fused_projections_are_leaves_too(self):
        model = nn.Sequential(nn.ModuleDict({n: nn.Linear(16, 8) for n in ("query", "key", "value")}))
        sb.fuse_qkv(sb.replace_linear(model, mode="rowwise"))

        class Sum(nn.Module):
            def __init__(self):
                super().__init__()
                self.of = model[0]

            def forward(self, x):
                return self.of["query"](x) + self.of["key"](x) * self.of["value"](x)

        whole = Sum()
        graph = fx.symbolic_trace(whole)
        called = [n.target for n in graph.graph.nodes if n.op == "call_module"]
        self.assertEqual(called, ["of.query", "of.key", "of.value"])
        self.assertTrue(torch.equal(graph(self.x), whole(self.x)))

    def test_what_cannot_be_traced_says_what_to_do(self):
        layer = sb.SwitchBackLinear(16, 8)
        with self.assertRaisesRegex(
            NotImplementedError, "SwitchBackLinear must be a submodule.*nn.Sequential.*torch.export"
        ):
            fx.symbolic_trace(layer)
        model = nn.Sequential(layer)
        handle = layer.register_forward_hook(lambda _module, _given, y: y * 2)
        with self.assertRaisesRegex(NotImplementedError, "SwitchBackLinear has forward hooks"):
            fx.symbolic_trace(model)
        handle.remove()
        self.assertTrue(torch.equal(fx.symbolic_trace(model)(self.x), model(self.x)))


if __name__ == "__main__":
    unittest.main()
