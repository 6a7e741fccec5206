# SPDX-License-Identifier: Apache-2.0
"""When the codes of a weight are made again, and when they are used again."""

import contextlib
import copy
import unittest

from support import relative_error, require_torch

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
        """The result of a new module with the same weight, which has never had another weight."""
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
        layer.weight.data = layer.weight.data.t()  # with the same address and version
        twin = sb.SwitchBackLinearVectorwise(K, K)
        twin.load_state_dict(layer.state_dict())
        self.assertTrue(torch.equal(layer(self.x), twin(self.x)))
        self.assertFalse(torch.equal(layer(self.x), y))

    def test_steps_of_an_optimizer(self):
        class ThroughData:
            """An optimizer that changes weights through .data, which autograd does not count, as some
            optimizers do."""

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
        # The teacher's weight follows a student's through .data, and no backward of the teacher runs.
        teacher = sb.SwitchBackLinearVectorwise(K, N).requires_grad_(False)
        for scope in (torch.no_grad, contextlib.nullcontext):
            with scope():
                teacher(self.x)
                teacher.weight.data.mul_(0.5)
                self.assertTrue(torch.equal(teacher(self.x), self.fresh(teacher)))

    def test_weight_updated(self):
        layer = sb.SwitchBackLinearVectorwise(K, N).eval()
        with torch.no_grad(), sb.reuse_weight_codes():
            stale = layer(self.x)
            layer.weight.data.mul_(2)
            # Inside reuse_weight_codes() the change is not noticed, as documented.
            self.assertTrue(torch.equal(layer(self.x), stale))
            layer.weight_updated()
            self.assertTrue(torch.equal(layer(self.x), self.fresh(layer)))
            layer.weight.data.mul_(2)
        with torch.no_grad():
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
                layer.weight_updated()  # also works inside reuse_weight_codes()
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
        # Sharding frees the storage of a weight between forward and backward, and a gradient may get that
        # memory.
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

    def test_a_backward_reads_the_weight_of_its_forward(self):
        layer = sb.SwitchBackLinearVectorwise(K, N)
        x = self.x.clone().requires_grad_()
        (want,) = torch.autograd.grad(sb_twin(layer)(x).sum(), x)
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


class ChangesUnseen(unittest.TestCase):
    """Changes of a weight that autograd's version counter does not count."""

    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(4, K)
        self.q = torch.randn(N, K)

    def changes(self):
        q = self.q

        def moving_average(weight):
            weight.data.mul_(0.1).add_(q.data, alpha=0.9)

        def target_network(weight):
            weight.data.copy_(-q)

        def merge(weight):
            weight.data += q

        def initialised(weight):
            weight.data.normal_()

        def for_each(weight):
            torch._foreach_mul_([weight.data], 3.0)
            torch._foreach_add_([weight.data], [q])

        def through_numpy(weight):
            weight.detach().numpy()[:] = q.numpy() * 2

        def one_element(weight):
            weight.data[N - 1, K - 1] += 9.0

        def signs(weight):
            weight.data.neg_()

        def rows_change_places(weight):
            weight.data.copy_(weight.data.flip(0))

        return [value for name, value in locals().items() if name not in ("self", "q")]

    def check(self, layer, forward, changes=None):
        twin = type(layer)(K, N)
        for change in changes or self.changes():
            for times in (1, 2, 3):  # with codes that one forward has used, or more
                for _ in range(times):
                    forward(layer, self.x)
                change(layer.weight)
                twin.load_state_dict(layer.state_dict())
                with self.subTest(change=change.__name__, times=times):
                    self.assertTrue(torch.equal(forward(layer, self.x), unrecorded(twin, self.x)))

    def test_every_change_in_every_mode(self):
        kinds = (
            sb.SwitchBackLinear,
            sb.SwitchBackLinearVectorwise,
            sb.SwitchBackLinearGlobalMemEfficient,
            sb.StandardLinear,
        )
        for kind in kinds:
            for training in (False, True):
                for frozen in (False, True):
                    for forward in (recorded, unrecorded, differentiated):
                        with self.subTest(
                            kind=kind.__name__,
                            training=training,
                            frozen=frozen,
                            forward=forward.__name__,
                        ):
                            layer = kind(K, N).train(training).requires_grad_(not frozen)
                            self.check(layer, forward)

    def test_in_turns(self):
        # Evaluation between training steps, for which an averaged weight is swapped in and out again.
        layer = sb.SwitchBackLinearVectorwise(K, N)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        twin = sb.SwitchBackLinearVectorwise(K, N)
        average = layer.weight.detach().clone()
        for _ in range(4):
            layer.train()
            layer(self.x).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            average.mul_(0.9).add_(layer.weight.detach(), alpha=0.1)
            layer.eval()
            for _ in range(2):
                own = layer.weight.detach().clone()
                layer.weight.data.copy_(average)
                twin.load_state_dict(layer.state_dict())
                self.assertTrue(torch.equal(unrecorded(layer, self.x), unrecorded(twin, self.x)))
                layer.weight.data.copy_(own)
                twin.load_state_dict(layer.state_dict())
                self.assertTrue(torch.equal(unrecorded(layer, self.x), unrecorded(twin, self.x)))

    def test_an_adapter_that_is_merged(self):
        # A LoRA adapter that is merged into a frozen base layer, as PEFT does it.
        class Adapted(torch.nn.Module):
            def __init__(self, base):
                super().__init__()
                self.base = base.requires_grad_(False)
                self.a = torch.nn.Parameter(torch.randn(3, K))
                self.b = torch.nn.Parameter(torch.randn(N, 3))
                self.merged = False

            def forward(self, x):
                y = self.base(x)
                return y if self.merged else y + x @ self.a.t() @ self.b.t()

            def merge(self, sign):
                self.base.weight.data += sign * (self.b @ self.a).detach()
                self.merged = not self.merged

        for training in (False, True):
            model = Adapted(sb.SwitchBackLinearVectorwise(K, N)).train(training)
            optimizer = torch.optim.SGD([model.a, model.b], 0.01)
            for _ in range(3):
                x = self.x.clone().requires_grad_()
                model(x).square().mean().backward()
                optimizer.step()
            with torch.no_grad():
                apart = model(self.x)
                model.merge(+1)
                merged = model(self.x)
                model.merge(-1)
                again = model(self.x)
            # Codes of W and of W + BA each differ from their weight by a rounding of 1/254 of a row's
            # largest magnitude. The bound of 5 % is ten times the usual effect, and a twentieth of the
            # effect of a lost adapter.
            self.assertLess(relative_error(merged, apart), 0.05)
            self.assertLess(relative_error(again, apart), 0.05)
            twin = sb.SwitchBackLinearVectorwise(K, N)
            twin.load_state_dict(model.base.state_dict())
            self.assertTrue(torch.equal(unrecorded(model.base, self.x), unrecorded(twin, self.x)))

    def test_copies_that_the_library_reads_instead(self):
        def autocast(layer, x):
            with torch.autocast("cpu", torch.bfloat16):
                return unrecorded(layer, x)

        for kind in (sb.SwitchBackLinearVectorwise, sb.StandardLinear):
            layer = kind(K, N).eval()
            twin = kind(K, N)
            transposed = kind(K, N).eval()
            transposed.weight = torch.nn.Parameter(torch.randn(K, N).t())
            apart = kind(K, N).eval()
            apart.weight = torch.nn.Parameter(torch.randn(N, 2 * K)[:, ::2])
            apart.bias = torch.nn.Parameter(torch.randn(2 * N)[::2])
            for module, forward in (
                (layer, autocast),
                (transposed, unrecorded),
                (transposed, differentiated),
                (apart, unrecorded),
                (apart, recorded),
            ):
                for change in self.changes():
                    forward(module, self.x)
                    forward(module, self.x)
                    change(module.weight)
                    module.bias.data.add_(1.0)
                    twin.load_state_dict(module.state_dict())
                    with self.subTest(kind=kind.__name__, change=change.__name__):
                        self.assertTrue(torch.equal(forward(module, self.x), forward(twin, self.x)))

    def test_a_bias(self):
        layer = sb.SwitchBackLinear(K, N).eval()
        y = unrecorded(layer, self.x)
        layer.bias.data.fill_(0.0)
        without = unrecorded(layer, self.x)
        self.assertFalse(torch.equal(without, y))
        self.assertTrue(
            torch.equal(without, unrecorded(layer, self.x))
            and torch.equal(layer.bias, torch.zeros(N))
        )
        layer.bias = torch.nn.Parameter(torch.randn(2 * N)[::2])  # the library reads a copy of this bias
        for _ in range(3):
            unrecorded(layer, self.x)
        layer.bias.data.add_(1.0)
        self.assertTrue(torch.equal(unrecorded(layer, self.x), unrecorded(sb_twin(layer), self.x)))

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
        (want,) = torch.autograd.grad(sb_twin(layer)(x).sum(), x)
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
                    self.assertTrue(torch.equal(layer(self.x), sb_twin(layer)(self.x)))

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
            for _ in range(3):
                unrecorded(layer, self.x)
            self.assertEqual(len(calls), 3)
            with sb.reuse_weight_codes():
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
                    self.assertTrue(torch.equal(out, sb_twin(layer)(self.x)))
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
            self.assertTrue(torch.equal(layer(self.x), sb_twin(layer)(self.x)))


class Cost(unittest.TestCase):
    """How often weights are quantized and fingerprints computed in common uses."""

    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(4, K)

    def test_training_takes_no_fingerprints(self):
        with counted(("switchback_fingerprint",)) as taken:
            layer = sb.SwitchBackLinearVectorwise(K, N)
            optimizer = torch.optim.SGD(layer.parameters(), 0.1)
            for _ in range(4):
                layer(self.x).sum().backward()
                optimizer.step()
            self.assertEqual(len(taken), 0)
            with sb.reuse_weight_codes():
                for _ in range(4):
                    layer(self.x).sum().backward()
            self.assertEqual(len(taken), 0)

    def test_inference_takes_one_a_forward(self):
        with counted(("switchback_fingerprint",)) as taken:
            layer = sb.SwitchBackLinearVectorwise(K, N).eval()
            for _ in range(4):
                unrecorded(layer, self.x)
            self.assertEqual(len(taken), 4)
            with sb.reuse_weight_codes():
                for _ in range(4):
                    unrecorded(layer, self.x)
            self.assertEqual(len(taken), 4)
            layer.prepare_for_eval()
            del taken[:]
            for _ in range(4):
                unrecorded(layer, self.x)
            self.assertEqual(len(taken), 12)  # fingerprints of codes, scales and bias
            with sb.reuse_weight_codes():
                for _ in range(4):
                    unrecorded(layer, self.x)
            self.assertEqual(len(taken), 12)
            del taken[:]
            standard = sb.StandardLinear(K, N).eval()  # has no codes that could be outdated
            for _ in range(4):
                unrecorded(standard, self.x)
            self.assertEqual(len(taken), 0)

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
            (got,) = torch.autograd.grad(y.sum(), [layer.weight], retain_graph=True)
            self.assertTrue(torch.equal(got, want))
            self.assertEqual(told, [])
            weight = layer.weight
            layer.prepare_for_eval()
            prepared = unrecorded(layer, self.x)
            (got,) = torch.autograd.grad(y.sum(), [weight])
            self.assertTrue(torch.equal(got, want))
            self.assertEqual(told, [])
            self.assertTrue(torch.equal(unrecorded(layer, self.x), prepared))

    def test_a_frozen_layer_quantizes_once(self):
        layer = sb.SwitchBackLinearVectorwise(K, N).requires_grad_(False)
        with counted() as told:
            for _ in range(2):
                differentiated(layer, self.x)
            del told[:]
            for _ in range(4):
                differentiated(layer, self.x)
            self.assertEqual(told, [])


def sb_twin(layer):
    """A module of the same class with the same weight, which has never had another weight."""
    twin = type(layer)(K, N)
    twin.load_state_dict(layer.state_dict())
    return twin.train(layer.training).requires_grad_(layer.weight.requires_grad)


if __name__ == "__main__":
    unittest.main()
