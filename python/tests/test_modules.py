# SPDX-License-Identifier: Apache-2.0
"""The layer modules as Python classes (names, arguments, attributes, errors), and replace_linear."""

import copy
import functools
import inspect
import itertools
import pickle
import unittest
import warnings

from support import require_torch, run_python

torch = require_torch()

import switchback  # noqa: E402
from look_alikes import Conv1D  # noqa: E402
from switchback import nn as sb  # noqa: E402
from switchback._tensors import HAS_OPERATORS  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import prune  # noqa: E402

KINDS_OF_LINEAR = (
    sb.SwitchBackLinear,
    sb.SwitchBackLinearGlobal,
    sb.SwitchBackLinearGlobalMemEfficient,
    sb.SwitchBackLinearVectorwise,
    sb.StandardLinear,
)


class Construction(unittest.TestCase):
    def test_calls_are_those_of_the_modules_replaced(self):
        """The arguments have the names of the replaced modules, so calls with keywords still work."""
        x = torch.randn(3, 8)
        for kind in KINDS_OF_LINEAR:
            theirs, ours = (list(inspect.signature(each.__init__).parameters) for each in (nn.Linear, kind))
            self.assertEqual(ours[: len(theirs)], theirs)
            layer = kind(in_features=8, out_features=5, bias=True, device="cpu", dtype=torch.float32)
            self.assertTrue(torch.equal(layer(input=x), layer(x)))
            layer.prepare_for_eval()
            self.assertTrue(torch.equal(layer(input=x), layer(x)))
        self.assertTrue(torch.equal(sb.GELU()(input=x), sb.GELU()(x)))

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
        for prepare in (nn.Module.train, sb.prepare_for_eval):
            model = nn.Sequential(Conv1D(5, 8))
            yield Conv1D(5, 8), prepare(sb.replace_linear(model, mode="rowwise"))[0]
        yield nn.GELU(), sb.GELU()
        model = nn.Sequential(nn.MultiheadAttention(8, 2))
        yield copy.deepcopy(model[0]), sb.replace_linear(model, mode="rowwise", attention=True)[0]

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
                takes = [list(inspect.signature(type(m).forward).parameters) for m in (theirs, ours)]
                self.assertEqual(takes[1][: len(takes[0])], takes[0])
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
            self.assertIsInstance(layer, nn.Linear)
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
        found = []
        for kind in (nn.Linear, sb.SwitchBackLinear):
            torch.manual_seed(0)
            found.append(kind(5, 3))
        for want, got in zip(*(layer.parameters() for layer in found)):
            self.assertTrue(torch.equal(got, want))

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
    OPTIONS = (
        {"mode": "rowwise"},
        {"mode": "global", "mem_efficient": True},
        {"mode": "rowwise_shared", "dw": "int8_block"},
        {"mode": "standard"},
    )

    def pairs(self):
        for (k, n), bias, options in itertools.product(self.SIZES, (True, False), self.OPTIONS):
            with warnings.catch_warnings(), self.subTest(k=k, n=n, bias=bias, **options):
                warnings.simplefilter("ignore")  # torch warns of a weight without elements
                want = nn.Linear(k, n, bias)
                got = sb.replace_linear(nn.Sequential(want), **options)[0]
                self.assertIsInstance(got, sb.SwitchBackLinear)
                yield want, got

    def test_forward_and_backward(self):
        for want, got in self.pairs():
            for shape in ((4,), (2, 2), (0,)):
                results = []
                for layer in (want, got):
                    x = torch.ones(*shape, want.in_features, requires_grad=True)
                    layer.zero_grad(set_to_none=True)
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
            got.prepare_for_eval()
            self.assertEqual(got.is_prepared, got.mode != "standard")
            self.assertTrue(torch.equal(got(x), want(x)))
            if got.is_prepared:
                self.assertTrue(torch.equal(got(x.bfloat16()), want(x).bfloat16()))
            other = copy.deepcopy(got)
            for state in (got.state_dict(), want.state_dict()):
                other.load_state_dict(state)
                self.assertTrue(torch.equal(other(x), want(x)))

    def test_compositions(self):
        for k, n in self.SIZES:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                query, key, value = (sb.SwitchBackLinear(k, n, mode="rowwise") for _ in range(3))
                mlp = sb.SwitchBackMLP(k, 5, n, mode="rowwise")
            model = nn.ModuleDict({"query": query, "key": key, "value": value})
            with self.assertWarnsRegex(UserWarning, "no inputs or no outputs"):
                sb.fuse_qkv(model)
            x = torch.ones(4, k)
            self.assertTrue(torch.equal(query(x), nn.functional.linear(x, query.weight, query.bias)))
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
        self.layer, self.x = sb.SwitchBackLinear(5, 3), torch.randn(2, 5)

    def raises(self, kind, words, x, layer=None):
        with self.assertRaises(kind) as caught:
            (layer or self.layer)(x)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_dtype(self):
        x = self.x
        self.raises(TypeError, ("torch.float64", "float32"), x.double())
        self.raises(TypeError, ("torch.int64",), x.long())
        self.raises(TypeError, ("torch.float16", "torch.float32", ".to("), x.half())
        self.raises(TypeError, ("torch.float64",), x, sb.SwitchBackLinear(5, 3, dtype=torch.float64))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.raises(TypeError, ("torch.float64",), x.double())
        self.layer.bias = nn.Parameter(torch.zeros(3).half())
        self.raises(TypeError, ("bias", "torch.float16"), x)

    def test_shape(self):
        layer, x = self.layer, self.x
        want, weight = layer(x), layer.weight
        self.raises(ValueError, ("(2, 4)", "in_features = 5"), torch.randn(2, 4))
        self.raises(ValueError, ("()",), torch.tensor(1.0))
        self.raises(ValueError, ("(5, 0)",), torch.randn(5, 0))
        layer.weight = nn.Parameter(torch.randn(4, 5))
        self.raises(ValueError, ("weight", "4"), x)
        layer.weight = weight
        self.assertTrue(torch.equal(layer(x), want))  # a failure leaves the layer usable
        layer.bias = nn.Parameter(torch.randn(4))
        self.raises(ValueError, ("bias", "4"), x)

    def test_what_is_no_plain_tensor(self):
        for x, word in (
            ([[1.0] * 5], "list"),
            (self.x.numpy(), "ndarray"),
            (None, "NoneType"),
            (self.x.to_sparse(), "sparse"),
        ):
            self.raises(TypeError, (word,), x)
        from torch._subclasses import FakeTensorMode

        with FakeTensorMode():
            fake = torch.empty(2, 5)
        if HAS_OPERATORS:  # torch's dispatcher refuses this: the weight would have to be fake too
            self.raises(AssertionError, ("FakeTensor", "switchback.linear"), fake)
        else:
            self.raises(TypeError, ("FakeTensor",), fake)

        class Named(torch.Tensor):
            pass

        self.assertEqual(self.layer(self.x.as_subclass(Named)).shape, (2, 3))

    def test_device(self):
        self.raises(ValueError, ("meta", "cpu", ".to("), self.x.to("meta"))
        layer = sb.SwitchBackLinear(5, 3, device="meta")
        if not HAS_OPERATORS:
            self.raises(NotImplementedError, ("meta", "cuda"), self.x.to("meta"), layer)
        self.raises(ValueError, ("meta",), self.x, layer)

    def test_a_weight_that_was_freed(self):
        # Between uses, sharded parameters have a shape but no memory.
        weight = self.layer.weight
        storage = weight.untyped_storage() if hasattr(weight, "untyped_storage") else weight.storage()
        self.layer(self.x)
        storage.resize_(0)
        self.raises(ValueError, ("storage",), self.x)

    def test_jit_trace(self):
        with self.assertRaisesRegex(RuntimeError, "trace"):
            torch.jit.trace(self.layer, self.x)


class Processes(unittest.TestCase):
    def test_exit_with_layers_alive(self):
        script = (
            "import torch, threading\nfrom switchback import nn as sb\n"
            "layer = sb.SwitchBackLinear(30, 20)\n"
            "x = torch.randn(4, 30, requires_grad=True)\ny = layer(x)\n"
            "thread = threading.Thread(target=lambda: layer(x)); thread.start()\n"
        )
        done = run_python("-c", script)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.attention = nn.MultiheadAttention(8, 2)
        self.head = nn.Linear(8, 3)
        self.tied = self.head

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x) + self.tied(x)


class Replace(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.model = Net()
        self.x = torch.randn(4, 8)

    def names(self, **options):
        replaced = []
        model = Net()
        self.assertIs(sb.replace_linear(model, replaced=replaced, **options), model)
        kinds = [n for n, m in model.named_modules() if isinstance(m, sb.SwitchBackLinear)]
        self.assertEqual(kinds, replaced)
        return replaced

    def test_which(self):
        every = ["blocks.0.up", "blocks.0.down", "blocks.1.up", "blocks.1.down", "head"]
        self.assertEqual(self.names(), every)
        self.assertEqual(self.names(exclude="head"), every[:-1])
        self.assertEqual(self.names(include="blocks.*.up"), [every[0], every[2]])
        some = self.names(include=["blocks.*", "head"], exclude=["*.down"])
        self.assertEqual(some, [every[0], every[2], "head"])
        some = self.names(include=lambda name, module: module.bias is None)
        self.assertEqual(some, [every[1], every[3]])
        self.assertEqual(self.names(include=[]), [])
        self.assertEqual(self.names(exclude=(lambda name, module: "blocks" in name, "head")), [])

    def test_what_stays(self):
        model = self.model.eval()
        model.head.train()
        old_head, old_names = model.head, [n for n, _ in model.named_parameters()]
        parameters = list(model.parameters())
        sb.replace_linear(model, sb.SwitchBackLinearVectorwise)
        self.assertIsInstance(model.head, sb.SwitchBackLinearVectorwise)
        self.assertIs(model.head, model.tied)
        self.assertIs(model.head.weight, old_head.weight)
        self.assertTrue(model.head.training)
        self.assertFalse(model.blocks[0].up.training)
        self.assertIs(type(model.attention.out_proj).__base__, nn.Linear)  # not replaced
        self.assertEqual([n for n, _ in model.named_parameters()], old_names)
        for before, after in zip(parameters, model.parameters()):
            self.assertIs(before, after)
        model.load_state_dict(Net().state_dict())
        again = []
        sb.replace_linear(model, replaced=again)
        self.assertEqual(again, [])

    def test_ways_to_name_a_layer(self):
        both = {"vector_wise_quantization": True, "mem_efficient": True}
        for layer, options, mode, lean in (
            (sb.SwitchBackLinear, both, "rowwise", True),
            (sb.SwitchBackLinear, {"mode": "auto"}, "auto", False),
            (functools.partial(sb.SwitchBackLinear, mode="standard"), {}, "standard", False),
            (sb.SwitchBackLinearGlobalMemEfficient, {}, "global", True),
        ):
            model = sb.replace_linear(Block(), layer, **options)
            self.assertEqual((model.up.mode, model.up.mem_efficient), (mode, lean))
            model(self.x).sum().backward()

    def test_the_model_itself(self):
        linear = nn.Linear(8, 3)
        replaced = []
        new = sb.replace_linear(linear, replaced=replaced)
        self.assertIsInstance(new, sb.SwitchBackLinear)
        self.assertIs(new.weight, linear.weight)
        self.assertEqual(replaced, [""])
        self.assertIs(sb.replace_linear(new), new)

    def test_hooks_are_kept(self):
        seen = []
        linear = self.model.head
        first = linear.register_forward_hook(lambda *_: seen.append("forward"))
        linear.register_forward_pre_hook(lambda *_: seen.append("pre"))
        linear.register_full_backward_hook(lambda *_: seen.append("backward"))
        sb.replace_linear(self.model)
        self.model.head(self.x.requires_grad_()).sum().backward()
        self.assertEqual(seen, ["pre", "forward", "backward"])
        first.remove()
        self.model.head(self.x)
        self.assertEqual(seen[3:], ["pre"])

    def test_dtype_and_frozen(self):
        model = Block().bfloat16().requires_grad_(False)
        sb.replace_linear(model)
        self.assertEqual(model(self.x.bfloat16()).dtype, torch.bfloat16)
        self.assertFalse(model.up.weight.requires_grad)

    def test_a_computed_weight_is_refused(self):
        prune.random_unstructured(self.model.blocks[1].up, "weight", 0.5)
        with self.assertRaisesRegex(ValueError, "blocks.1.up"):
            sb.replace_linear(self.model)
        self.assertIs(type(self.model.head), nn.Linear)  # the failed call replaced nothing
        sb.replace_linear(self.model, exclude="blocks.1.up")
        self.assertIsInstance(self.model.head, sb.SwitchBackLinear)

    def test_hooks_on_the_state_dict_are_refused(self):
        self.model.head._register_load_state_dict_pre_hook(lambda *arguments: None)
        with self.assertRaisesRegex(ValueError, "head"):
            sb.replace_linear(self.model)


class Nothing(unittest.TestCase):
    """A call of replace_linear that replaces nothing warns."""

    def warned(self, call):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            call()
        return [str(warning.message) for warning in found]

    def test_patterns_that_match_nothing(self):
        def model():
            return nn.Sequential(nn.Linear(4, 4), nn.ReLU())

        for words, options in (
            ("replaced nothing in Sequential.*include = 'attn", {"include": "attn.*"}),
            ("replaced nothing", {"include": "0", "exclude": "0"}),
            ("exclude = 'zzz' matches no module", {"exclude": ["zzz", "0"]}),
        ):
            (found,) = self.warned(lambda options=options: sb.replace_linear(model(), **options))
            self.assertRegex(found, words)
        for options in ({}, {"include": "0"}, {"exclude": "0"}, {"exclude": lambda name, _: False}):
            self.assertEqual(self.warned(lambda options=options: sb.replace_linear(model(), **options)), [])
        self.assertEqual(self.warned(lambda: sb.replace_linear(nn.Linear(4, 4))), [])

    def test_models_without_layers(self):
        (found,) = self.warned(lambda: sb.prepare_for_eval(nn.Sequential(nn.Linear(4, 4))))
        self.assertIn("no switchback layer in Sequential", found)
        model = sb.replace_linear(nn.Sequential(nn.Linear(4, 4)), mode="auto")
        (found,) = self.warned(lambda: sb.prepare_for_eval(model))
        self.assertIn("mode 'auto', which computes with float weights: nothing is prepared", found)
        model = sb.replace_linear(nn.Sequential(nn.Linear(4, 4)))
        self.assertEqual(self.warned(lambda: sb.prepare_for_eval(sb.prepare_for_eval(model))), [])


if __name__ == "__main__":
    unittest.main()
