# SPDX-License-Identifier: Apache-2.0
"""When codes of a weight are made anew, and when they are used again."""

import contextlib
import unittest

from support import require_torch

torch = require_torch()

from switchback import nn as sb  # noqa: E402
from switchback.nn._layer import Layer  # noqa: E402

K, N = 19, 11


@contextlib.contextmanager
def counted():
    """Counts how often a layer of the library is told of a weight."""
    calls = []

    class Counting:
        def __init__(self, library):
            self._library = library

        def __getattr__(self, name):
            if name in ("switchback_linear_set_weight", "switchback_linear_weight_updated"):
                calls.append(name)
            return getattr(self._library, name)

    init = Layer.__init__

    def counting_init(self, *arguments):
        init(self, *arguments)
        self._lib = Counting(self._lib)

    Layer.__init__ = counting_init
    try:
        yield calls
    finally:
        Layer.__init__ = init


class Weight(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(4, K)

    def fresh(self, layer):
        """What a module that has never seen another weight gives."""
        twin = sb.SwitchBackLinearVectorwise(K, N)
        twin.load_state_dict(layer.state_dict())
        return twin(self.x)

    def follows(self, layer, change):
        layer(self.x)
        change()
        self.assertTrue(torch.equal(layer(self.x), self.fresh(layer)))

    def test_changes_autograd_sees(self):
        for training in (True, False):
            layer = sb.SwitchBackLinearVectorwise(K, N).train(training)

            def in_place(layer=layer):
                with torch.no_grad():
                    layer.weight.mul_(2)

            def another(layer=layer):
                layer.weight = torch.nn.Parameter(torch.randn(N, K))

            def data_of_another(layer=layer):
                layer.weight.data = torch.randn(N, K)

            def transposed(layer=layer):
                layer.weight = torch.nn.Parameter(torch.randn(K, N).t())

            def bias(layer=layer):
                with torch.no_grad():
                    layer.bias.add_(1)

            def loaded(layer=layer):
                layer.load_state_dict({"weight": torch.randn(N, K), "bias": torch.randn(N)})

            for change in (in_place, another, data_of_another, transposed, in_place, bias, loaded):
                with self.subTest(change=change.__name__, training=training):
                    self.follows(layer, change)
                    with torch.no_grad():
                        self.follows(layer, change)

    def test_a_square_weight_that_is_transposed(self):
        layer = sb.SwitchBackLinearVectorwise(K, K)
        y = layer(self.x)
        layer.weight.data = layer.weight.data.t()  # the same address, the same version
        twin = sb.SwitchBackLinearVectorwise(K, K)
        twin.load_state_dict(layer.state_dict())
        self.assertTrue(torch.equal(layer(self.x), twin(self.x)))
        self.assertFalse(torch.equal(layer(self.x), y))

    def test_steps_of_an_optimizer(self):
        class ThroughData:
            """What some optimizers and sharding schemes do: nothing that autograd could count."""

            def __init__(self, parameters):
                self.parameters = list(parameters)

            def step(self):
                for parameter in self.parameters:
                    parameter.data.sub_(parameter.grad.data, alpha=0.1)

        for make in (lambda p: torch.optim.SGD(p, 0.1), ThroughData):
            layer = sb.SwitchBackLinearVectorwise(K, N)
            optimizer = make(layer.parameters())
            for _ in range(3):
                layer.zero_grad()
                before = layer(self.x)
                before.square().sum().backward()
                optimizer.step()
                after = layer(self.x)
                self.assertFalse(torch.equal(before, after))
                self.assertTrue(torch.equal(after, self.fresh(layer)))

    def test_a_teacher_in_training_mode(self):
        # Follows a student through .data and never runs a backward.
        teacher = sb.SwitchBackLinearVectorwise(K, N).requires_grad_(False)
        for scope in (torch.no_grad, contextlib.nullcontext):
            with scope():
                teacher(self.x)
                teacher.weight.data.mul_(0.5)
                self.assertTrue(torch.equal(teacher(self.x), self.fresh(teacher)))

    def test_weight_updated(self):
        layer = sb.SwitchBackLinearVectorwise(K, N).eval()
        with torch.no_grad():
            stale = layer(self.x)
            layer.weight.data.mul_(2)
            self.assertTrue(torch.equal(layer(self.x), stale))  # as documented
            layer.weight_updated()
            self.assertTrue(torch.equal(layer(self.x), self.fresh(layer)))

    def test_codes_are_used_again(self):
        with counted() as calls:
            layer = sb.SwitchBackLinearVectorwise(K, N).eval()
            with torch.no_grad():
                for _ in range(3):
                    layer(self.x)
            self.assertEqual(len(calls), 1)
            layer.train()
            ys = [layer(self.x) for _ in range(3)]
            self.assertEqual(len(calls), 1)
            sum(y.sum() for y in ys).backward()  # with the codes of the forwards
            self.assertEqual(len(calls), 1)
            layer(self.x)
            self.assertEqual(len(calls), 2)

    def test_gradient_accumulation(self):
        with counted() as calls:
            layer = sb.SwitchBackLinearVectorwise(K, N)
            optimizer = torch.optim.SGD(layer.parameters(), 0.1)
            batches = [torch.randn(3, K) for _ in range(4)]
            for step in (1, 2):
                optimizer.zero_grad()
                with sb.reuse_weight_codes():
                    for batch in batches:
                        layer(batch).square().sum().backward()
                self.assertEqual(len(calls), step)
                optimizer.step()
            with sb.reuse_weight_codes():
                layer(self.x)
                self.assertEqual(len(calls), 3)
                layer.weight_updated()  # counts there too
                layer(self.x)
                self.assertEqual(len(calls), 4)
            twin = sb.SwitchBackLinearVectorwise(K, N)
            twin.load_state_dict(layer.state_dict())
            layer.zero_grad()
            for module in (layer, twin):
                for batch in batches:
                    module(batch).square().sum().backward()
            self.assertTrue(torch.equal(layer.weight.grad, twin.weight.grad))

    def test_an_accumulated_gradient_is_the_sum(self):
        layer = sb.SwitchBackLinear(K, N)
        batches = [torch.randn(3, K) for _ in range(3)]
        parts = [torch.autograd.grad(layer(b).sum(), layer.weight)[0] for b in batches]
        for batch in batches:
            layer(batch).sum().backward()
        self.assertTrue(torch.equal(layer.weight.grad, parts[0] + parts[1] + parts[2]))

    def test_one_weight_in_two_modules(self):
        one, other = sb.SwitchBackLinear(K, N), sb.SwitchBackLinear(K, N)
        other.weight, other.bias = one.weight, one.bias
        x = self.x
        (one(x) + other(x)).sum().backward()
        torch.optim.SGD(one.parameters(), 0.1).step()
        self.assertTrue(torch.equal(one(x), other(x)))

    def test_a_weight_that_is_computed(self):
        from torch.nn.utils import parametrize

        class Twice(torch.nn.Module):
            def forward(self, weight):
                return 2 * weight

        layer = sb.SwitchBackLinear(K, N)
        want = sb.SwitchBackLinear(K, N)
        want.load_state_dict({"weight": 2 * layer.weight.detach(), "bias": layer.bias.detach()})
        parametrize.register_parametrization(layer, "weight", Twice())
        x = self.x.clone().requires_grad_()
        y = layer(x)
        self.assertTrue(torch.equal(y, want(self.x)))
        y.sum().backward()
        want(self.x).sum().backward()
        self.assertTrue(
            torch.equal(layer.parametrizations.weight.original.grad, 2 * want.weight.grad)
        )
        with self.assertRaisesRegex(RuntimeError, "parametrization"):
            layer.prepare_for_eval()

    def test_memory_that_was_freed_and_given_to_a_gradient(self):
        # Sharding frees the storage of a weight between forward and backward.
        layer = sb.SwitchBackLinear(K, N)
        storage_of = lambda t: t.untyped_storage() if hasattr(t, "untyped_storage") else t.storage()  # noqa: E731
        want = torch.autograd.grad(layer(self.x).sum(), [layer.weight])[0]
        y = layer(self.x)
        storage = storage_of(layer.weight)
        bytes_needed = N * K * 4 if hasattr(layer.weight, "untyped_storage") else N * K
        kept = layer.weight.detach().clone()
        for _ in range(3):
            storage.resize_(0)
            (dw,) = torch.autograd.grad(y.sum(), [layer.weight], retain_graph=True)
            self.assertTrue(torch.equal(dw, want))
            del dw
        storage.resize_(bytes_needed)
        layer.weight.data.copy_(kept)
        self.assertTrue(torch.equal(layer(self.x), y))

    def test_moving_lets_go_of_the_weight(self):
        layer = sb.SwitchBackLinear(K, N)
        layer(self.x)
        self.assertGreater(layer._layers.cached_bytes(), 0)
        layer.to(torch.float32)
        self.assertEqual(layer._layers.cached_bytes(), 0)
        layer.half()
        self.assertEqual(layer(self.x.half()).dtype, torch.float16)


if __name__ == "__main__":
    unittest.main()
