# SPDX-License-Identifier: Apache-2.0
"""When the codes of a weight are made again, and when they are used again."""

import contextlib
import copy
import itertools
import unittest
from unittest import mock

from support import require_torch

torch = require_torch()

from switchback import nn as sb  # noqa: E402
from switchback.nn._layer import Layer  # noqa: E402

K, N = 19, 11

TOLD = (
    "switchback_linear_set_weight",
    "switchback_linear_weight_updated",
    "switchback_linear_weight_may_have_changed",
)


@contextlib.contextmanager
def counted(names=TOLD):
    """Counts how often a layer of the library is given a weight, and its calls of other functions."""
    calls = []

    class Counting:
        def __init__(self, library):
            self._library = library

        def __getattr__(self, name):
            if name in names:
                calls.append(name)
            return getattr(self._library, name)

    init = Layer.__init__

    def counting_init(self, *arguments):
        init(self, *arguments)
        self._lib = Counting(self._lib)

    with mock.patch.object(Layer, "__init__", counting_init):
        yield calls


def twin_of(layer):
    """A module of the same class with the same weight, which has never had another weight."""
    twin = type(layer)(layer.in_features, layer.out_features)
    twin.load_state_dict(layer.state_dict())
    return twin.train(layer.training).requires_grad_(layer.weight.requires_grad)


def recorded(layer, x):
    """Runs a forward that autograd records."""
    with torch.enable_grad():
        return layer(x).detach()


def unrecorded(layer, x):
    with torch.no_grad():
        return layer(x)


def differentiated(layer, x):
    """Runs forward and backward; with frozen parameters, backward computes dx alone."""
    x = x.clone().requires_grad_()
    y = layer(x)
    y.sum().backward()
    layer.zero_grad()
    return y.detach()


class Weight(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(4, K)

    def test_changes_autograd_sees(self):
        parameter = torch.nn.Parameter
        other = sb.SwitchBackLinearVectorwise(K, N)
        changes = {
            "in place": lambda layer: layer.weight.mul_(2),
            "another": lambda layer: setattr(layer, "weight", parameter(torch.randn(N, K))),
            "data of another": lambda layer: setattr(layer.weight, "data", torch.randn(N, K)),
            "transposed": lambda layer: setattr(layer, "weight", parameter(torch.randn(K, N).t())),
            "in place, transposed": lambda layer: layer.weight.mul_(2),
            "bias": lambda layer: layer.bias.add_(1),
            "loaded": lambda layer: layer.load_state_dict(other.state_dict()),
        }
        for training in (True, False):
            layer = sb.SwitchBackLinearVectorwise(K, N).train(training)
            for (name, change), mode in itertools.product(
                changes.items(), (torch.enable_grad, torch.no_grad)
            ):
                with self.subTest(change=name, training=training, mode=mode), mode():
                    layer(self.x)
                    with torch.no_grad():
                        change(layer)
                    self.assertTrue(torch.equal(layer(self.x), twin_of(layer)(self.x)))

    def test_a_square_weight_that_is_transposed(self):
        layer = sb.SwitchBackLinearVectorwise(K, K)
        y = layer(self.x)
        layer.weight.data = layer.weight.data.t()  # with the same address and version
        self.assertTrue(torch.equal(layer(self.x), twin_of(layer)(self.x)))
        self.assertFalse(torch.equal(layer(self.x), y))

    def test_weight_updated(self):
        layer = sb.SwitchBackLinearVectorwise(K, N).eval()
        with torch.no_grad(), sb.reuse_weight_codes():
            stale = layer(self.x)
            layer.weight.data.mul_(2)
            # Inside reuse_weight_codes() the change is not noticed, as documented.
            self.assertTrue(torch.equal(layer(self.x), stale))
            layer.weight_updated()
            self.assertTrue(torch.equal(layer(self.x), twin_of(layer)(self.x)))
            layer.weight.data.mul_(2)
        with torch.no_grad():
            self.assertTrue(torch.equal(layer(self.x), twin_of(layer)(self.x)))

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
            sum(y.sum() for y in ys).backward()  # backward uses the codes of the forwards
            self.assertEqual(len(calls), 1)
            layer(self.x)
            self.assertEqual(len(calls), 2)

    def test_the_memory_of_a_copy_is_written_again(self):
        """Under autocast the library reads a copy of the weight in another dtype, whose memory is used again.
        """

        def autocast(layer):
            with torch.autocast("cpu", torch.bfloat16):
                return layer(self.x)

        layer = sb.SwitchBackLinearVectorwise(K, N)
        with torch.inference_mode():
            autocast(layer)  # a copy made in inference mode cannot be written later
        copies = set()
        for step in range(4):
            y = autocast(layer)
            copies.add(layer._layers.latest._borrowed[0].data_ptr())
            twin = copy.deepcopy(layer)
            other = autocast(twin)
            self.assertTrue(torch.equal(y, other))
            (got,), (want,) = (
                torch.autograd.grad(out.float().square().sum(), module.weight)
                for out, module in ((y, layer), (other, twin))
            )
            self.assertTrue(torch.equal(got, want))
            with torch.no_grad():
                layer.weight.sub_(got, alpha=0.01)
            if step == 2:  # a weight with other strides
                layer.weight = torch.nn.Parameter(layer.weight.detach().t().contiguous().t())
        self.assertLessEqual(len(copies), 2)  # the copy of inference mode lived until the second

    def test_gradient_accumulation(self):
        with counted() as calls:
            layer = sb.SwitchBackLinearVectorwise(K, N)
            optimizer = torch.optim.SGD(layer.parameters(), 0.1)
            for step in (1, 2):
                optimizer.zero_grad()
                with sb.reuse_weight_codes():
                    for _ in range(4):
                        layer(self.x).square().sum().backward()
                self.assertEqual(len(calls), step)
                optimizer.step()
            with sb.reuse_weight_codes():
                layer(self.x)
                self.assertEqual(len(calls), 3)
                layer.weight_updated()  # also works inside reuse_weight_codes()
                layer(self.x)
                self.assertEqual(len(calls), 4)

    def test_an_accumulated_gradient_is_the_sum(self):
        layer = sb.SwitchBackLinear(K, N)
        batches = [torch.randn(3, K) for _ in range(3)]
        parts = [torch.autograd.grad(layer(b).sum(), layer.weight)[0] for b in batches]
        for batch in batches:
            layer(batch).sum().backward()
        self.assertTrue(torch.equal(layer.weight.grad, parts[0] + parts[1] + parts[2]))

    def test_memory_that_was_freed_and_given_to_a_gradient(self):
        # Sharding frees the storage of a weight between forward and backward, and a gradient may get that
        # memory.
        layer = sb.SwitchBackLinear(K, N)
        want = torch.autograd.grad(layer(self.x).sum(), [layer.weight])[0]
        y = layer(self.x)
        weight = layer.weight
        storage = weight.untyped_storage() if hasattr(weight, "untyped_storage") else weight.storage()
        size, kept = storage.size(), weight.detach().clone()
        for _ in range(3):
            storage.resize_(0)
            (dw,) = torch.autograd.grad(y.sum(), [layer.weight], retain_graph=True)
            self.assertTrue(torch.equal(dw, want))
            del dw
        storage.resize_(size)
        weight.data.copy_(kept)
        self.assertTrue(torch.equal(layer(self.x), y))

    def test_a_backward_reads_the_weight_of_its_forward(self):
        layer = sb.SwitchBackLinearVectorwise(K, N)
        x = self.x.clone().requires_grad_()
        (want,) = torch.autograd.grad(twin_of(layer)(x).sum(), x)
        y = layer(x)
        layer.weight = torch.nn.Parameter(torch.randn(N, K))
        layer(self.x)
        (got,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
        self.assertTrue(torch.equal(got, want))
        codes = unrecorded(layer.prepare_for_eval(), self.x)
        (got,) = torch.autograd.grad(y.sum(), x)
        self.assertTrue(torch.equal(got, want))
        self.assertTrue(torch.equal(unrecorded(layer, self.x), codes))

    def test_moving_lets_go_of_the_weight(self):
        layer = sb.SwitchBackLinear(K, N)
        layer(self.x)
        self.assertGreater(layer._layers.cached_bytes(), 0)
        layer.to(torch.float32)
        self.assertEqual(layer._layers.cached_bytes(), 0)
        layer.half()
        self.assertEqual(layer(self.x.half()).dtype, torch.float16)


class ChangesUnseen(unittest.TestCase):
    """Changes of a weight that autograd's version counter does not count."""

    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(4, K)
        self.q = torch.randn(N, K)

    def changes(self):
        q = self.q
        return {
            "an operation": lambda weight: weight.data.add_(q),
            "_foreach": lambda weight: torch._foreach_mul_([weight.data], 3.0),
            "numpy": lambda weight: weight.detach().numpy().__imul__(0.5),
            "one element": lambda weight: weight.data[N - 1, K - 1].add_(9.0),
            "rows change places": lambda weight: weight.data.copy_(weight.data.flip(0)),
        }.items()

    def check(self, layer, forward):
        # The codes have been used by one forward, or by more.
        for (name, change), times in itertools.product(self.changes(), (1, 2, 3)):
            for _ in range(times):
                forward(layer, self.x)
            change(layer.weight)
            with self.subTest(change=name, times=times):
                want = unrecorded(twin_of(layer), self.x)
                self.assertTrue(torch.equal(forward(layer, self.x), want))

    def test_every_change_in_every_mode(self):
        kinds = (
            sb.SwitchBackLinear,
            sb.SwitchBackLinearVectorwise,
            sb.SwitchBackLinearGlobalMemEfficient,
            sb.StandardLinear,
        )
        forwards = recorded, unrecorded, differentiated
        booleans = False, True
        for which in itertools.product(kinds, booleans, booleans, forwards):
            kind, training, frozen, forward = which
            with self.subTest(kind=kind, training=training, frozen=frozen, forward=forward):
                self.check(kind(K, N).train(training).requires_grad_(not frozen), forward)

    def test_in_turns(self):
        # Evaluation between training steps, for which an averaged weight is swapped in and out again.
        layer = sb.SwitchBackLinearVectorwise(K, N)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        average = layer.weight.detach().clone()
        for _ in range(4):
            layer(self.x).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            own = layer.weight.detach().clone()
            average.mul_(0.9).add_(own, alpha=0.1)
            for weight in (average, own, average, own):
                layer.weight.data.copy_(weight)
                want = unrecorded(twin_of(layer), self.x)
                self.assertTrue(torch.equal(unrecorded(layer, self.x), want))

    def test_copies_that_the_library_reads_instead(self):
        def autocast(layer, x):
            with torch.autocast("cpu", torch.bfloat16):
                return unrecorded(layer, x)

        def of(kind, weight, bias):
            layer = kind(K, N).eval()
            layer.weight, layer.bias = torch.nn.Parameter(weight), torch.nn.Parameter(bias)
            return layer

        for kind in (sb.SwitchBackLinearVectorwise, sb.StandardLinear):
            plain = kind(K, N).eval()
            transposed = of(kind, torch.randn(K, N).t(), torch.randn(N))
            apart = of(kind, torch.randn(N, 2 * K)[:, ::2], torch.randn(2 * N)[::2])
            for layer, forward in (
                (plain, autocast),
                (transposed, unrecorded),
                (transposed, differentiated),
                (apart, unrecorded),
                (apart, recorded),
            ):
                for name, change in self.changes():
                    forward(layer, self.x)
                    forward(layer, self.x)
                    change(layer.weight)
                    layer.bias.data.add_(1.0)
                    with self.subTest(kind=kind.__name__, change=name):
                        want = forward(twin_of(layer), self.x)
                        self.assertTrue(torch.equal(forward(layer, self.x), want))

    def test_a_bias(self):
        layer = sb.SwitchBackLinear(K, N).eval()
        y = unrecorded(layer, self.x)
        layer.bias.data.fill_(0.0)
        without = unrecorded(layer, self.x)
        self.assertFalse(torch.equal(without, y))
        self.assertTrue(torch.equal(without, unrecorded(layer, self.x)))
        layer.bias = torch.nn.Parameter(torch.randn(2 * N)[::2])  # the library reads a copy of this bias
        for _ in range(3):
            unrecorded(layer, self.x)
        layer.bias.data.add_(1.0)
        self.assertTrue(torch.equal(unrecorded(layer, self.x), unrecorded(twin_of(layer), self.x)))

    def test_codes_of_backward_are_those_of_the_same_weight(self):
        # A backward between a change and its undoing makes codes of the changed weight, which must not be
        # used later.
        layer = sb.SwitchBackLinearVectorwise(K, N).eval().requires_grad_(False)
        kept = layer.weight.detach().clone()
        unrecorded(layer, self.x)
        x = self.x.clone().requires_grad_()
        unrecorded(layer, self.x)
        y = layer(x)
        layer.weight.data.mul_(-3.0)
        y.sum().backward()
        layer.weight.data.copy_(kept)
        (want,) = torch.autograd.grad(twin_of(layer)(x).sum(), x)
        (got,) = torch.autograd.grad(layer(x).sum(), x)
        self.assertTrue(torch.equal(got, want))

    def test_inference_tensors(self):
        with torch.inference_mode():
            layer = sb.SwitchBackLinear(K, N).eval()
            with counted() as calls:
                layer(self.x)
                layer(self.x)
                layer(self.x)
                self.assertEqual(len(calls), 1)
                with sb.reuse_weight_codes():  # torch does not count changes of inference tensors
                    layer.weight.mul_(2.0)
                    self.assertTrue(torch.equal(layer(self.x), twin_of(layer)(self.x)))

    def test_where_there_are_no_fingerprints(self):
        # Without fingerprints, as on a GPU, where the host would have to wait for one.
        layer = sb.SwitchBackLinearVectorwise(K, N).eval()
        with counted() as calls:
            unrecorded(layer, self.x)
            (found,) = layer._layers._layers.values()
            found._on_cpu = False
            for forward in (unrecorded, recorded):
                self.check(layer, forward)
            del calls[:]
            for again in (contextlib.nullcontext, sb.reuse_weight_codes):
                with again():
                    for _ in range(3):
                        unrecorded(layer, self.x)
                self.assertEqual(len(calls), 3)

    def test_a_device_is_asked_where_torch_saw_no_change(self):
        # The layer treats this machine as a CUDA device. The library's functions are the same there.
        changed, asked = "switchback_linear_weight_updated", "switchback_linear_weight_may_have_changed"
        layer = sb.SwitchBackLinearVectorwise(K, N)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        with counted((changed, asked)) as calls:
            layer(self.x).sum().backward()
            (found,) = layer._layers._layers.values()
            found._on_cpu = False

            def steps(accumulated):
                del calls[:]
                optimizer.step()
                optimizer.zero_grad()
                for _ in range(accumulated):
                    out = layer(self.x)
                    self.assertTrue(torch.equal(out, twin_of(layer)(self.x)))
                    out.sum().backward()
                return [name for name in calls if name in (changed, asked)]

            self.assertEqual(steps(1), [changed])
            self.assertEqual(steps(1), [changed])
            self.assertEqual(steps(3), [changed, asked, asked])
            self.assertEqual(steps(3), [asked, asked, asked])
            self.assertEqual(steps(1), [asked])
            self.assertEqual(steps(1), [changed])
            # A change through .data, which torch does not notice, is noticed too.
            del calls[:]
            layer.weight.data.mul_(2.0)
            self.assertTrue(torch.equal(layer(self.x), twin_of(layer)(self.x)))


class Cost(unittest.TestCase):
    """How often weights are quantized and fingerprints computed in common uses."""

    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(4, K)

    def test_training_takes_no_fingerprints(self):
        with counted(("switchback_fingerprint",)) as taken:
            layer = sb.SwitchBackLinearVectorwise(K, N)
            optimizer = torch.optim.SGD(layer.parameters(), 0.1)
            for again in (contextlib.nullcontext, sb.reuse_weight_codes):
                for _ in range(4):
                    with again():
                        layer(self.x).sum().backward()
                    optimizer.step()
            self.assertEqual(taken, [])

    def test_inference_takes_one_a_forward(self):
        def taken_by(layer):
            del taken[:]
            for _ in range(4):
                unrecorded(layer, self.x)
            return len(taken)

        with counted(("switchback_fingerprint",)) as taken:
            layer = sb.SwitchBackLinearVectorwise(K, N).eval()
            self.assertEqual(taken_by(layer), 4)
            with sb.reuse_weight_codes():
                self.assertEqual(taken_by(layer), 0)
            layer.prepare_for_eval()
            self.assertEqual(taken_by(layer), 12)  # fingerprints of codes, scales and bias
            with sb.reuse_weight_codes():
                self.assertEqual(taken_by(layer), 0)
            standard = sb.StandardLinear(K, N).eval()  # has no codes that could be outdated
            self.assertEqual(taken_by(standard), 0)

    def test_a_layer_used_twice_a_step_quantizes_once(self):
        with counted() as told:
            layer = sb.SwitchBackLinearVectorwise(K, N)
            for step in range(4):
                (layer(self.x).sum() + layer(self.x).square().sum()).backward()
                if step > 0:  # the first step shows that the codes are used twice
                    self.assertEqual(len(told), 1)
                del told[:]

    def test_a_backward_without_dx_is_lent_no_weight(self):
        with counted() as told:
            layer = sb.SwitchBackLinearVectorwise(K, N)
            y = layer(self.x)
            (want,) = torch.autograd.grad(y.sum(), [layer.weight], retain_graph=True)
            layer.to(torch.float32)  # releases the weight
            del told[:]
            weight = layer.weight
            for prepare in (layer.eval, layer.prepare_for_eval):
                prepare()
                (got,) = torch.autograd.grad(y.sum(), [weight], retain_graph=True)
                self.assertTrue(torch.equal(got, want))
                self.assertEqual(told, [])

    def test_a_frozen_layer_quantizes_once(self):
        layer = sb.SwitchBackLinearVectorwise(K, N).requires_grad_(False)
        with counted() as told:
            for _ in range(2):
                differentiated(layer, self.x)
            del told[:]
            for _ in range(4):
                differentiated(layer, self.x)
            self.assertEqual(told, [])


if __name__ == "__main__":
    unittest.main()
