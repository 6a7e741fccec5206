# SPDX-License-Identifier: Apache-2.0
"""The layer modules as Python classes: names, arguments, errors, forks, and tools that trace."""

import copy
import inspect
import pickle
import unittest
import warnings

from support import require_torch, run_python, torch_at_least

torch = require_torch()

import switchback  # noqa: E402
from look_alikes import Conv1D  # noqa: E402
from switchback import nn as sb  # noqa: E402
from switchback._tensors import HAS_OPERATORS  # noqa: E402
from torch import nn  # noqa: E402

KINDS_OF_LINEAR = (
    sb.SwitchBackLinear,
    sb.SwitchBackLinearGlobal,
    sb.SwitchBackLinearGlobalMemEfficient,
    sb.SwitchBackLinearVectorwise,
    sb.StandardLinear,
)


class Construction(unittest.TestCase):
    def test_calls_are_those_of_the_modules_replaced(self):
        """The arguments of forward have the names of the replaced modules, so calls with keywords still work.
        """
        x = torch.randn(3, 8)
        for kind in KINDS_OF_LINEAR:
            for call in ("__init__", "forward"):
                theirs = inspect.signature(getattr(nn.Linear, call)).parameters
                ours = inspect.signature(getattr(kind, call)).parameters
                if call == "forward":
                    self.assertEqual(list(ours), list(theirs))
                else:
                    self.assertEqual(list(ours)[: len(theirs)], list(theirs))
            layer = kind(in_features=8, out_features=5, bias=True, device="cpu", dtype=torch.float32)
            self.assertTrue(torch.equal(layer(input=x), layer(x)))
            layer.prepare_for_eval()
            self.assertTrue(torch.equal(layer(input=x), layer(x)))
        self.assertTrue(torch.equal(sb.GELU()(input=x), sb.GELU()(x)))
        conv = sb.replace_linear(nn.Sequential(Conv1D(5, 8)), mode="rowwise")[0]
        self.assertTrue(torch.equal(conv(x=x), conv(x)))

    def pairs(self):
        """Pairs of a module and its switchback replacement; for prepared layers, nn.Linear with the weight
        of the codes."""
        for kind in KINDS_OF_LINEAR:
            yield nn.Linear(8, 5), kind(8, 5)
            yield nn.Linear(8, 5, False, dtype=torch.bfloat16), kind(8, 5, False, dtype=torch.bfloat16)
            prepared = kind(8, 5)
            linear = nn.Linear(8, 5)
            linear.weight = prepared.weight
            yield linear, prepared.prepare_for_eval()
        yield Conv1D(5, 8), sb.replace_linear(nn.Sequential(Conv1D(5, 8)), mode="rowwise")[0]
        conv = sb.replace_linear(nn.Sequential(Conv1D(5, 8)), mode="rowwise")[0]
        yield Conv1D(5, 8), conv.prepare_for_eval()
        yield nn.GELU(), sb.GELU()
        attention = nn.MultiheadAttention(8, 2)
        model = nn.Sequential(copy.deepcopy(attention))
        yield attention, sb.replace_linear(model, mode="rowwise", attention=True)[0]

    def test_attributes_are_those_of_the_modules_replaced(self):
        for theirs, ours in self.pairs():
            with self.subTest(ours=ours):
                for name, value in vars(theirs).items():
                    if name == "approximate" or name.startswith("_"):
                        continue
                    self.assertEqual(getattr(ours, name), value, name)
                for name, value in theirs.named_parameters():
                    owner, _, last = name.rpartition(".")
                    found = getattr(ours.get_submodule(owner), last)
                    self.assertIsInstance(found, torch.Tensor)
                    for attribute in ("shape", "dtype", "device", "layout", "ndim"):
                        self.assertEqual(getattr(found, attribute), getattr(value, attribute), name)
                if not isinstance(theirs, nn.GELU):
                    self.assertIn(theirs.extra_repr(), ours.extra_repr())
                theirs_takes = list(inspect.signature(type(theirs).forward).parameters)
                takes = list(inspect.signature(type(ours).forward).parameters)
                self.assertEqual(takes[: len(theirs_takes)], theirs_takes)
                for copied in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
                    self.assertIs(type(copied), type(ours))
                    self.assertEqual(repr(copied), repr(ours))
                    self.assertEqual(list(copied.state_dict()), list(ours.state_dict()))

    def test_the_weight_of_a_prepared_layer(self):
        for options in ({"mode": "global"}, {"mode": "rowwise"}, {"mode": "rowwise", "rotation": 16}):
            layer = sb.SwitchBackLinear(16, 5, **options)
            conv = sb.replace_linear(nn.Sequential(Conv1D(5, 16)), **options)[0]
            for module in (layer, conv):
                before = module.weight.detach().clone()
                module.prepare_for_eval()
                weight = module.weight
                # The error is half a step between codes, of which the largest is 127; a rotation adds up to
                # 16 errors.
                allowed = before.abs().max() / 127 * (4 if module.rotation else 0.501)
                self.assertLess(float((weight - before).abs().max()), float(allowed))
                x = torch.randn(3, 16, requires_grad=True)
                matrix = weight if module is conv else weight.t()
                y = x @ matrix
                (got,) = torch.autograd.grad(y.sum(), x)
                numbers = torch.from_numpy(weight.numpy()).reshape(before.shape)
                wide = numbers if module is conv else numbers.t()
                self.assertTrue(torch.equal(y, x @ wide))
                self.assertTrue(torch.equal(got, torch.ones(3, 5) @ wide.t()))
                self.assertTrue(torch.equal(weight[1:3], numbers[1:3]))
                self.assertTrue(torch.equal(weight.detach().clone(), numbers))
                self.assertEqual(weight.to(torch.float16).dtype, torch.float16)
                module.W_int8.zero_()
                self.assertEqual(float(weight.abs().max()), 0.0)
                for write in (
                    lambda weight: weight.zero_(),
                    lambda weight: weight.data.copy_(before),
                    lambda weight: weight[0].fill_(1),
                    lambda weight: weight.t().mul_(2),
                    lambda weight: torch.add(before, 1, out=weight),
                    lambda weight: torch._foreach_mul_([weight], 2.0),
                    lambda weight: nn.init.normal_(weight),
                ):
                    with self.assertRaisesRegex(switchback.InvalidState, "in_features|nx=16.*exclude"):
                        write(weight)
                self.assertEqual([name for name, _ in module.named_parameters()], ["bias"])
                module.to(torch.bfloat16)
                self.assertEqual(module.weight.dtype, torch.bfloat16)

    def test_names_and_arguments(self):
        for make, mode, lean in (
            (sb.SwitchBackLinear, "global", False),
            (sb.SwitchBackLinearGlobal, "global", False),
            (sb.SwitchBackLinearGlobalMemEfficient, "global", True),
            (sb.SwitchBackLinearVectorwise, "rowwise", False),
            (sb.StandardLinear, "standard", False),
        ):
            layer = make(5, 3, bias=False, device="cpu", dtype=torch.float16)
            self.assertIsInstance(layer, torch.nn.Linear)
            self.assertIsInstance(layer, sb.SwitchBackLinear)
            self.assertEqual((layer.mode, layer.mem_efficient), (mode, lean))
            self.assertEqual((layer.in_features, layer.out_features, layer.bias), (5, 3, None))
            self.assertEqual((layer.weight.dtype, layer.weight.shape), (torch.float16, (3, 5)))
            self.assertIn(f"mode={mode}", repr(layer))
            self.assertIs(getattr(switchback, make.__name__), make)
        layer = sb.SwitchBackLinear(5, 3, True, None, None, True, True)
        self.assertTrue(layer.vector_wise_quantization and layer.mem_efficient)
        self.assertIn("mem_efficient=True", repr(layer))

    def test_initialisation_is_that_of_linear(self):
        torch.manual_seed(0)
        want = torch.nn.Linear(5, 3)
        torch.manual_seed(0)
        got = sb.SwitchBackLinear(5, 3)
        self.assertTrue(torch.equal(got.weight, want.weight) and torch.equal(got.bias, want.bias))

    def test_what_contradicts_itself(self):
        for options in (
            {"mode": "int4"},
            {"mode": "global", "vector_wise_quantization": True},
            {"mode": "standard", "mem_efficient": True},
            {"mode": "auto", "mem_efficient": True},
        ):
            with self.assertRaisesRegex(ValueError, str(options["mode"])):
                sb.SwitchBackLinear(5, 3, **options)
        for features in ((-1, 3), (3, -1)):
            with self.assertRaisesRegex(ValueError, "features = -1; it must be at least 0"):
                sb.SwitchBackLinear(*features)


class NothingToMultiply(unittest.TestCase):
    """Layers without inputs or without outputs have nn.Linear's results and gradients."""

    SIZES = ((0, 3), (3, 0), (0, 0))

    def pairs(self):
        for k, n in self.SIZES:
            for bias in (True, False):
                for options in (
                    {"mode": "rowwise"},
                    {"mode": "global", "mem_efficient": True},
                    {"mode": "rowwise_shared", "dw": "int8_block"},
                    {"mode": "standard"},
                ):
                    with warnings.catch_warnings(), self.subTest(k=k, n=n, bias=bias, **options):
                        warnings.simplefilter("ignore")  # torch warns of a weight without elements
                        want = torch.nn.Linear(k, n, bias)
                        got = sb.replace_linear(torch.nn.Sequential(want), **options)[0]
                        self.assertIsInstance(got, sb.SwitchBackLinear)
                        yield want, got

    def test_forward_and_backward(self):
        for want, got in self.pairs():
            for shape in ((4,), (2, 2), (0,)):
                results = []
                for layer in (want, got):
                    x = torch.ones(*shape, want.in_features, requires_grad=True)
                    layer.zero_grad()
                    y = layer(x)
                    y.sum().backward()
                    results.append((y, x.grad, *(p.grad for p in layer.parameters())))
                for a, b in zip(*results):
                    self.assertTrue(torch.equal(a, b))
            with self.assertRaisesRegex(ValueError, f"in_features = {want.in_features}"):
                got(torch.ones(4, 7))

    def test_prepared_and_loaded(self):
        for want, got in self.pairs():
            x = torch.ones(4, want.in_features)
            state = got.prepare_for_eval().state_dict()
            self.assertEqual(got.is_prepared, got.mode != "standard")
            self.assertTrue(torch.equal(got(x), want(x)))
            y = got(x.bfloat16()) if got.is_prepared else None
            self.assertTrue(y is None or torch.equal(y, want(x).bfloat16()))
            other = copy.deepcopy(got)
            other.load_state_dict(state)
            self.assertTrue(torch.equal(other(x), want(x)))
            other.load_state_dict(want.state_dict())
            self.assertTrue(torch.equal(other(x), want(x)))

    def test_compositions(self):
        for k, n in self.SIZES:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                query, key, value = (sb.SwitchBackLinear(k, n, mode="rowwise") for _ in range(3))
                mlp = sb.SwitchBackMLP(k, 5, n, mode="rowwise")
            model = torch.nn.ModuleDict({"query": query, "key": key, "value": value})
            with self.assertWarnsRegex(UserWarning, "no inputs or no outputs"):
                sb.fuse_qkv(model)
            x = torch.ones(4, k)
            self.assertTrue(torch.equal(query(x), torch.nn.functional.linear(x, query.weight, query.bias)))
            y = mlp(x)
            y.sum().backward()
            self.assertEqual(y.shape, (4, n))
            self.assertTrue(torch.equal(mlp.up.bias.grad == 0, torch.full((5,), n == 0)))

    @unittest.skipUnless(HAS_OPERATORS, "operators need torch 2.4")
    def test_compiled(self):
        for want, got in self.pairs():
            if got.dw != "floating" or want.bias is None:
                continue
            x = torch.ones(4, want.in_features)
            compiled = torch.compile(got, backend="aot_eager", fullgraph=True)
            self.assertTrue(torch.equal(compiled(x), want(x)))


class Errors(unittest.TestCase):
    def setUp(self):
        self.layer = sb.SwitchBackLinear(5, 3)

    def raises(self, kind, words, call):
        with self.assertRaises(kind) as caught:
            call()
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_dtype(self):
        x = torch.randn(2, 5)
        self.raises(TypeError, ("torch.float64", "float32"), lambda: self.layer(x.double()))
        self.raises(TypeError, ("torch.int64",), lambda: self.layer(x.long()))
        self.raises(
            TypeError, ("torch.float16", "torch.float32", ".to("), lambda: self.layer(x.half())
        )
        self.raises(
            TypeError, ("torch.float64",), lambda: sb.SwitchBackLinear(5, 3, dtype=torch.float64)(x)
        )
        layer = sb.SwitchBackLinear(5, 3)
        layer.bias = torch.nn.Parameter(torch.zeros(3).half())
        self.raises(TypeError, ("bias", "torch.float16"), lambda: layer(x))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.raises(TypeError, ("torch.float64",), lambda: self.layer(x.double()))

    def test_shape(self):
        self.raises(
            ValueError, ("(2, 4)", "in_features = 5"), lambda: self.layer(torch.randn(2, 4))
        )
        self.raises(ValueError, ("()",), lambda: self.layer(torch.tensor(1.0)))
        self.raises(ValueError, ("(5, 0)",), lambda: self.layer(torch.randn(5, 0)))
        self.layer.weight = torch.nn.Parameter(torch.randn(4, 5))
        self.raises(ValueError, ("weight", "4"), lambda: self.layer(torch.randn(2, 5)))
        self.layer.weight = torch.nn.Parameter(torch.randn(3, 5))
        self.assertEqual(self.layer(torch.randn(2, 5)).shape, (2, 3))
        self.layer.bias = torch.nn.Parameter(torch.randn(4))
        self.raises(ValueError, ("bias", "4"), lambda: self.layer(torch.randn(2, 5)))

    def test_what_is_no_plain_tensor(self):
        x = torch.randn(2, 5)
        self.raises(TypeError, ("list",), lambda: self.layer([[1.0] * 5]))
        self.raises(TypeError, ("ndarray",), lambda: self.layer(x.numpy()))
        self.raises(TypeError, ("NoneType",), lambda: self.layer(None))
        self.raises(TypeError, ("sparse",), lambda: self.layer(x.to_sparse()))
        from torch._subclasses import FakeTensorMode

        with FakeTensorMode():
            fake = torch.empty(2, 5)
        if HAS_OPERATORS:  # torch's dispatcher refuses this: the weight would have to be fake too
            self.raises(AssertionError, ("FakeTensor", "switchback.linear"), lambda: self.layer(fake))
        else:
            self.raises(TypeError, ("FakeTensor",), lambda: self.layer(fake))

        class Named(torch.Tensor):
            pass

        self.assertEqual(self.layer(x.as_subclass(Named)).shape, (2, 3))

    def test_device(self):
        x = torch.randn(2, 5)
        self.raises(ValueError, ("meta", "cpu", ".to("), lambda: self.layer(x.to("meta")))
        layer = sb.SwitchBackLinear(5, 3, device="meta")
        if not HAS_OPERATORS:
            self.raises(NotImplementedError, ("meta", "cuda"), lambda: layer(x.to("meta")))
        self.raises(ValueError, ("meta",), lambda: layer(x))

    def test_a_weight_that_was_freed(self):
        # Between uses, sharded parameters have a shape but no memory.
        weight = self.layer.weight
        storage = (
            weight.untyped_storage() if hasattr(weight, "untyped_storage") else weight.storage()
        )
        x = torch.randn(2, 5)
        self.layer(x)
        storage.resize_(0)
        self.raises(ValueError, ("storage",), lambda: self.layer(x))

    def test_a_failure_leaves_the_layer_usable(self):
        x = torch.randn(2, 5)
        want = self.layer(x)
        weight = self.layer.weight
        self.layer.weight = torch.nn.Parameter(torch.randn(4, 5))
        with self.assertRaises(ValueError):
            self.layer(x)
        self.layer.weight = weight
        self.assertTrue(torch.equal(self.layer(x), want))

    def test_jit_trace(self):
        self.raises(
            RuntimeError, ("trace",), lambda: torch.jit.trace(self.layer, torch.randn(2, 5))
        )


_FORK = """
import os, sys, signal
import torch
import switchback
from switchback import nn as sb
torch.manual_seed(0)
switchback.set_num_threads(2)
layer = sb.SwitchBackLinear(300, 200)
x = torch.randn(64, 300)
want = layer(x)
want.sum().backward()
want_grad = layer.weight.grad.clone()
child = os.fork()
if child == 0:
    signal.alarm(60)
    torch.set_num_threads(1)
    layer.zero_grad()
    y = layer(x)
    assert torch.equal(y, want)
    y.sum().backward()
    assert torch.equal(layer.weight.grad, want_grad)
    del layer
    sys.stdout.flush()
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert torch.equal(layer(x), want)
"""


class Processes(unittest.TestCase):
    def test_fork(self):
        done = run_python("-c", _FORK)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_exit_with_layers_alive(self):
        script = (
            "import torch, threading\nfrom switchback import nn as sb\n"
            "layer = sb.SwitchBackLinear(30, 20)\n"
            "x = torch.randn(4, 30, requires_grad=True)\ny = layer(x)\n"
            "thread = threading.Thread(target=lambda: layer(x)); thread.start()\n"
        )
        done = run_python("-c", script)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


@unittest.skipUnless(torch_at_least(2, 1), "torch.compile needs torch 2.1")
class Compile(unittest.TestCase):
    def test_results_stay(self):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            sb.SwitchBackLinear(5, 8), torch.nn.ReLU(), sb.SwitchBackLinear(8, 3)
        )
        compiled = torch.compile(model, backend="eager")
        x, g = torch.randn(4, 5), torch.randn(4, 3)
        results = []
        for run in (model, compiled, compiled):
            model.zero_grad()
            given = x.clone().requires_grad_()
            y = run(given)
            y.backward(g)
            results.append([y, given.grad, *[p.grad.clone() for p in model.parameters()]])
        for other in results[1:]:
            for a, b in zip(results[0], other):
                self.assertTrue(torch.equal(a, b))


if __name__ == "__main__":
    unittest.main()
