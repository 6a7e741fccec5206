# SPDX-License-Identifier: Apache-2.0
"""The two paths of a layer's call to the library, compiled and ctypes: which one is used, and that both are
equal."""

import contextlib
import copy
import ctypes
import itertools
import os
import random
import shutil
import sys
import tempfile
import unittest
from unittest import mock

from support import (
    PACKAGE,
    TensorCase,
    builds_dispatch,
    compiled_calls,
    cuda_is_usable,
    require_torch,
    run_program,
    run_python,
)

torch = require_torch()

from switchback import nn as sb  # noqa: E402
from switchback import _abi, _context, ops  # noqa: E402
from switchback import _errors as sb_errors  # noqa: E402
from switchback._library import library  # noqa: E402
from switchback.nn import _dispatch, _function  # noqa: E402
from torch import nn  # noqa: E402

COMPILED = _dispatch.native is not None
K, N = 48, 40


def without_compiled():
    """A context manager, inside of which layers use only the Python path."""
    return mock.patch.object(_function, "native", None)


class Reported(unittest.TestCase):
    def said(self, **variables):
        script = "import switchback.nn; print(switchback.nn.dispatch_path())"
        return run_python("-c", script, env=variables)

    def test_what_the_variable_says(self):
        done = self.said(SWITCHBACK_DISPATCH="ctypes")
        self.assertEqual(done.stdout.strip(), "ctypes (SWITCHBACK_DISPATCH = 'ctypes')", done.stderr)
        done = self.said(SWITCHBACK_DISPATCH="fast")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("SWITCHBACK_DISPATCH = 'fast'; it must be", done.stderr)

    def test_compiled_or_a_reason(self):
        said = sb.dispatch_path()
        self.assertRegex(said, r"^compiled$" if COMPILED else r"^ctypes \(.+\)$")
        done = run_python("-m", "switchback")  # what bug reports quote
        self.assertIn(f"dispatch     {said}", done.stdout)
        if len(os.sched_getaffinity(0)) > 1:  # run_python sets torch to one thread
            self.assertIn("torch.get_num_threads() is 1", done.stdout)
        done = run_python("-m", "switchback", env={"SWITCHBACK_DISPATCH": "fast"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("dispatch     SWITCHBACK_DISPATCH = 'fast'; it must be", done.stdout)
        if not COMPILED and "SWITCHBACK_DISPATCH" not in said:
            done = self.said(SWITCHBACK_DISPATCH="compiled")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("SWITCHBACK_DISPATCH = 'compiled', but", done.stderr)


def calls_of(layer, x, g):
    """All results of a layer: forwards and gradients in eval and in training, before and after a change of
    the weight."""
    found = []
    for _ in range(2):
        with torch.no_grad():
            found += [layer(x), layer(x)]
        for _ in range(2):
            given = x.detach().requires_grad_()
            y = layer(given)
            y.backward(g.to(y.dtype))
            found += [y.detach(), given.grad]
            for parameter in layer.parameters():
                if parameter.grad is not None:
                    found.append(parameter.grad.clone())
                    with torch.no_grad():
                        parameter.sub_(parameter.grad, alpha=0.1)
                    parameter.grad = None
    return found


@unittest.skipUnless(COMPILED, f"there is no compiled dispatch: {sb.dispatch_path()}")
class Compiled(TensorCase):
    device = "cpu"

    def setUp(self):
        super().setUp()
        torch.set_default_device(self.device)  # for layers and tensors that tests create
        self.addCleanup(torch.set_default_device, None)

    @contextlib.contextmanager
    def taken(self):
        """Records the names of the calls that the compiled code handles, in a list."""
        names = []

        def seen(name, _result):
            if name.startswith(("forward", "backward")):
                names.append(name)

        with compiled_calls(seen):
            yield names

    def kinds(self):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for options in (
                {},
                {"mode": "rowwise"},
                {"mode": "standard"},
                {"mode": "auto"},
                {"mode": "rowwise", "mem_efficient": True},
                {"mem_efficient": True},
                {"mode": "rowwise", "rotation": 16},
                {"mode": "rowwise", "dw": "int8_block", "dw_block_rows": 128},
                {"mode": "rowwise", "bias": False},
            ):
                yield dtype, options

    def test_the_same_bits(self):
        for dtype, options in self.kinds():
            layer = sb.SwitchBackLinear(K, N, dtype=dtype, **options)
            for shape in ((5,), (2, 3), (), (1,), (2, 1, 4)):
                with self.subTest(dtype=dtype, shape=shape, **options):
                    x, g = torch.randn(*shape, K, dtype=dtype), torch.randn(*shape, N, dtype=dtype)
                    twin = copy.deepcopy(layer)
                    with self.taken() as taken:
                        got = calls_of(copy.deepcopy(layer), x, g)
                    with without_compiled():
                        self.identical(got, calls_of(twin, x, g))
                    self.assertEqual(taken.count("forward"), 7)  # all forwards except the first
                    self.assertEqual(taken.count("backward"), 4)

    def test_prepared(self):
        for dtype in (torch.float32, torch.bfloat16):
            for kind in (sb.SwitchBackLinearVectorwise, sb.SwitchBackLinearGlobal):
                layer = kind(K, N, dtype=dtype).prepare_for_eval()
                x, g = torch.randn(2, 3, K, dtype=dtype), torch.randn(2, 3, N, dtype=dtype)
                with without_compiled():
                    want = calls_of(copy.deepcopy(layer), x, g)
                with self.taken() as taken:
                    self.identical(calls_of(layer, x, g), want)
                self.assertGreaterEqual(taken.count("forward_prepared"), 3)
                self.assertGreaterEqual(taken.count("backward_prepared"), 3)
                layer.half()  # changes the dtype of the bias, but not the codes
                with without_compiled():
                    want = layer(x.half())
                self.identical([layer(x.half()), layer(x.half())], [want, want])

    def test_what_goes_on_through_python(self):
        layer = sb.SwitchBackLinearVectorwise(K, N)
        x, half = torch.randn(4, K), torch.randn(4, K).bfloat16()
        layer(x)
        other = sb.SwitchBackLinearVectorwise(K, N)
        uneven = torch.randn(4, 3, 2, K)[:, :2, 1]
        with torch.inference_mode():
            uncounted = copy.deepcopy(layer)
            uncounted.weight = nn.Parameter(layer.weight.clone(), requires_grad=False)
            uncounted(x)
        operands = {
            "columns": torch.randn(K, 4).t(),
            "negated": torch._neg_view(torch.randn(4, K)),
            "no rows": torch.randn(0, K),
            "uneven rows": uneven.transpose(0, 1),
            "a subclass": x.as_subclass(Plain),
        }
        cases = {name: lambda x=x: layer(x) for name, x in operands.items()}
        cases["another layer's first call"] = lambda: other(x)
        cases["inference tensors"] = lambda: uncounted(x)
        cases["autocast"] = lambda: autocast(x)
        cases["autocast, of its dtype"] = lambda: autocast(half)

        def autocast(x):
            with torch.autocast(self.device, torch.bfloat16):
                return layer(x)

        for name, call in cases.items():
            with self.subTest(case=name):
                with self.taken() as taken:
                    got = call().detach()
                self.assertEqual(taken, [])
                if name in operands and operands[name].numel():
                    one = _function._is_plain_call(operands[name], layer.weight, layer.bias, layer._layers)
                    both = "columns", "uneven rows"  # Python handles these, with a copy
                    self.assertEqual(one, name in both)
                with without_compiled():
                    self.identical([call().detach()], [got])

    def test_wrong_operands_are_still_refused(self):
        layer = sb.SwitchBackLinearVectorwise(K, N)
        x = torch.randn(4, K)
        layer(x)
        for kind, words, call in (
            (TypeError, "x is a list", lambda: layer([1.0])),
            (TypeError, "float64", lambda: layer(x.double())),
            (ValueError, "in_features = 48", lambda: layer(x[:, 1:])),
            (TypeError, "sparse", lambda: layer(x.to_sparse())),
            (TypeError, "float16", lambda: layer(x.half())),
            (ValueError, "meta", lambda: layer(x.to("meta"))),
        ):
            with self.assertRaisesRegex(kind, words):
                call()
        layer(x)
        layer.weight.data.untyped_storage().resize_(0)
        with self.assertRaisesRegex(ValueError, "storage"):
            layer(x)

    def test_nothing_else_holds_the_results(self):
        layer = sb.SwitchBackLinearVectorwise(K, N)
        x, g = torch.randn(4, K, requires_grad=True), torch.randn(4, N)
        layer(x)
        with self.taken() as taken:
            y = layer(x)
            grads = torch.autograd.grad(y, [x, *layer.parameters()], g)
        self.assertEqual(taken, ["forward", "backward"])
        for name, tensor in zip(("y", "dx", "dw", "db"), (y, *grads)):
            self.assertEqual(tensor._use_count(), 1, name)

    @contextlib.contextmanager
    def stand_ins(self, replaced):
        """Replaces functions of the library, for the compiled path and for the Python path."""
        real = {name: getattr(library(), name) for name in _dispatch.native.FUNCTIONS}
        used = dict(real)
        _dispatch.use(library())  # so that no new layer does it while the functions are replaced
        for name, function in replaced.items():
            kind = ctypes.CFUNCTYPE(ctypes.c_int32, *real[name].argtypes)
            used[name] = kind(function)
            setattr(library(), name, function)
        _dispatch.native.use(
            tuple(ctypes.cast(f, ctypes.c_void_p).value for f in used.values())
        )
        try:
            yield
        finally:
            for name in replaced:
                setattr(library(), name, real[name])
            _dispatch._used = None
            _dispatch.use(library())

    def test_errors_of_the_library(self):
        layer = sb.SwitchBackLinearVectorwise(K, N)
        x = torch.randn(4, K)
        layer(x)
        with self.stand_ins({"switchback_linear_forward": lambda *_: 3}):
            self.assertRaises(MemoryError, layer, x)
        want = layer(x)  # works only if the failed call released the lock
        # The library function that a second forward with an unchanged weight calls.
        on_cpu = self.device == "cpu"
        called = "switchback_fingerprint" if on_cpu else "switchback_linear_weight_updated"
        with self.stand_ins({called: lambda *_: 7}), torch.no_grad():
            self.assertRaises(sb_errors.InternalError, layer, x)
        self.identical([layer(x).detach()], [want.detach()])

    def test_all_calls_in_any_order(self):
        """Both paths share a layer's state, so each pass may use another path than the last. They tell the
        library of the same number of changes of the weight, and compute the same number of fingerprints."""
        x, g = torch.randn(4, K), torch.randn(4, N)

        def use_at_random(layer, path):
            """Returns all outputs. path(): a context manager that chooses the path of one pass."""
            optimizer = torch.optim.SGD(layer.parameters(), 0.01)
            given = x.clone().requires_grad_()
            outputs = []

            def forward(x):
                with path():
                    outputs.append(layer(x))
                return outputs[-1]

            def backward(y):
                with path():
                    y.backward(g)

            for step in torch.randint(0, 10, (400,), device="cpu").tolist():
                if step < 2:
                    with torch.no_grad():
                        forward(x)
                elif step == 2:
                    backward(forward(given) + forward(x))
                elif step == 3:
                    backward(forward(given))
                elif step == 4:
                    optimizer.step()
                elif step == 5:
                    layer.weight.data.mul_(1.01)  # autograd does not notice this change
                elif step == 6:
                    layer.weight_updated()
                elif step == 7:
                    layer.weight.requires_grad_(not layer.weight.requires_grad)
                elif step == 8:
                    with torch.no_grad():
                        layer.bias.add_(1.0)
                else:
                    with sb.reuse_weight_codes():
                        forward(given)
            return [y.detach() for y in outputs]

        def counting(name, calls):
            function = getattr(library(), name)

            def call(*arguments):
                calls.append(name)
                return function(*arguments)

            return call

        names = "switchback_linear_weight_updated", "switchback_fingerprint"
        coin = random.Random(1)
        either = lambda: without_compiled() if coin.random() < 0.5 else contextlib.nullcontext()  # noqa: E731
        outputs, told = [], []
        for path in (contextlib.nullcontext, without_compiled, either):
            torch.manual_seed(0)
            told.append([])
            with self.stand_ins({name: counting(name, told[-1]) for name in names}):
                outputs.append(use_at_random(sb.SwitchBackLinearVectorwise(K, N), path))
        self.assertGreater(len(told[0]), 10)
        # Not assertEqual, which would look for the shortest difference of long lists for minutes.
        self.assertTrue(told[0] == told[1], f"{len(told[0])} calls, and {len(told[1])}")
        self.identical(outputs[0], outputs[1])
        self.identical(outputs[2], outputs[1])

    def test_another_device(self):
        with mock.patch.object(_context.context_for("cpu"), "device_index", 5):
            layer = sb.SwitchBackLinearVectorwise(K, N)  # its compiled calls are for CUDA device 5
            x = torch.randn(4, K, requires_grad=True)
            want = layer(x).detach()
        with self.taken() as taken:
            y = layer(x)
            y.sum().backward()
        self.assertEqual(taken, [])
        self.identical([y.detach()], [want])

    def test_codes_that_no_layer_holds(self):
        """linear_of_codes has the bits of its two operations, and leaves to Python what it cannot read."""
        numbers = {torch.float32: _abi.F32, torch.float16: _abi.F16, torch.bfloat16: _abi.BF16}

        def call(x, codes, absmax, bias, dtype, rotation=0, activation=None):
            code = _abi.ACTIVATIONS.get(activation, 0)
            return _dispatch.linear_of_codes(x, codes, absmax, bias, numbers[dtype], rotation, code)

        codes = torch.randint(-127, 128, (N, K), dtype=torch.int8)
        for dtype, out, bias_type in itertools.product(numbers, numbers, (None, *numbers)):
            bias = None if bias_type is None else torch.randn(N).to(bias_type)
            for rows, scales, rotation, activation in itertools.product(
                ((5,), (2, 3), (1,)), (N, 1), (0, 16), (None, "gelu_tanh")
            ):
                x, absmax = torch.randn(*rows, K).to(dtype), torch.rand(scales)
                of_x, absmax_x = _function.codes_of(x.reshape(-1, K), rotation, activation)
                want = ops.gemm_dequantize(of_x, codes, absmax_x, absmax, bias, out)
                got = call(x, codes, absmax, bias, out, rotation, activation)
                with self.subTest(dtype=dtype, rows=rows, bias=bias_type, rotation=rotation, out=out):
                    self.identical([got], [want.reshape(*rows, N)])
        x, absmax, f32 = torch.randn(6, K), torch.rand(N), torch.float32
        apart = torch.randn(6, K + 5)[:, :K]
        want = call(apart.contiguous(), codes, absmax, None, f32)
        self.identical([call(apart, codes, absmax, None, f32)], [want])
        wide = torch.randint(-127, 128, (N, K + 1), dtype=torch.int8)[:, :K]
        for left in (
            (x.t().contiguous().t(), codes, absmax, None),
            (x[:, :-1], codes, absmax, None),
            (x[:0], codes, absmax, None),
            (x.to(torch.int8), codes, absmax, None),
            (x, wide, absmax, None),
            (x, codes.float(), absmax, None),
            (x, codes, absmax[1:], None),
            (x, codes, absmax.double(), None),
            (x, codes, absmax, torch.randn(N + 1)),
            (x, codes, absmax, torch.randn(2 * N)[::2]),
            (x.as_subclass(Plain), codes, absmax, None),
        ):
            self.assertIsNone(call(*left, f32))
        with torch.autocast(self.device, torch.bfloat16):
            self.assertIsNone(call(x, codes, absmax, None, f32))
        with self.assertRaisesRegex(ValueError, "rotation"):
            call(x, codes, absmax, None, f32, 3)

    def test_numbers_of_threads_are_followed(self):
        layer = sb.SwitchBackLinearVectorwise(K, N)
        x = torch.randn(4, K)
        before = torch.get_num_threads()
        # If another test has called switchback.set_num_threads, the context does not follow torch's number
        # of threads.
        self.addCleanup(_context._retire, "cpu")
        self.addCleanup(torch.set_num_threads, before)
        with mock.patch.object(_context, "_num_threads", None):
            _context._retire("cpu")
            layer(x)
            torch.set_num_threads(before + 1)
            with self.taken() as taken:
                layer(x)
                self.assertEqual(taken, [])
                layer(x)
                self.assertEqual(taken, ["forward"])


@unittest.skipUnless(cuda_is_usable(), "no GPU that torch and the library can use")
class CompiledOnCuda(Compiled):
    device = "cuda"
    test_numbers_of_threads_are_followed = None  # of the CPU

    def test_streams_are_followed(self):
        layer = sb.SwitchBackLinearVectorwise(K, N)
        x = torch.randn(4, K)
        want = layer(x)
        for stream in (torch.cuda.Stream(), torch.cuda.default_stream(), torch.cuda.Stream()):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream), self.taken() as taken:
                got = layer(x)
            torch.cuda.synchronize()
            self.assertEqual(taken, ["forward"])
            self.assertEqual(layer._layers.latest.context.stream, stream.cuda_stream or 1)
            self.identical([got.detach()], [want.detach()])

    def test_another_device(self):
        layer = sb.SwitchBackLinearVectorwise(K, N)
        layer(torch.randn(4, K))
        with self.taken() as taken, self.assertRaisesRegex(ValueError, "device cpu"):
            layer(torch.randn(4, K, device="cpu"))
        self.assertEqual(taken, [])


class Plain(torch.Tensor):
    """A subclass of torch.Tensor whose tensors have their own memory."""


@unittest.skipUnless(builds_dispatch(), "it needs torch 2.10, Python 3.10, a compiler and headers")
class Built(unittest.TestCase):
    """Builds the compiled dispatch and runs the tests of layers with it, unless all tests already run with
    it."""

    @unittest.skipIf(COMPILED, "it is there: all tests run on it")
    def test_with_it(self):
        with tempfile.TemporaryDirectory() as folder:
            ignore = shutil.ignore_patterns("*.so", "__pycache__")
            package = os.path.join(folder, "switchback")
            shutil.copytree(os.path.join(PACKAGE, "switchback"), package, ignore=ignore)
            build = ("setup.py", "-q", "build_dispatch", "--into", package)
            done = run_python(*build, cwd=PACKAGE)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            environment = {
                "PYTHONPATH": folder,
                "SWITCHBACK_DISPATCH": "compiled",
                "SWITCHBACK_LIBRARY": os.path.realpath(library()._name),
            }
            for name in ("dispatch", "weight", "autograd", "prepared"):
                tests = ("-m", "unittest", "discover", "-s", os.path.dirname(__file__))
                run = (sys.executable, *tests, "-p", f"test_{name}.py")
                done = run_program(*run, env=environment, cwd=folder)
                self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
