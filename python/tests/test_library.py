# SPDX-License-Identifier: Apache-2.0
"""Finding, loading and checking the C library; its threads, forks, and calls from several Python threads."""

import os
import platform
import tempfile
import threading
import types
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
from support import require_torch, run_python

import switchback
from switchback import _abi, _context, _cuda_memory, _library, ops
from switchback._context import Context


def library_of_version(major, minor):
    return types.SimpleNamespace(switchback_abi_version=lambda: major << 16 | minor)


class FreedMemory(unittest.TestCase):
    PROGRAM = """
import resource, numpy, switchback
assert switchback.keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
numpy.ones(6 << 20, dtype=numpy.float64)
before = faults()
for _ in range(10):
    numpy.ones(6 << 20, dtype=numpy.float64)
print(faults() - before)
"""

    @unittest.skipUnless(platform.libc_ver()[0] == "glibc", "it is glibc that can be told")
    def test_it_is_not_asked_for_again(self):
        done = run_python("-c", self.PROGRAM, env={"NUMPY_MADVISE_HUGEPAGE": "0"})
        if "ASAN" in done.stderr or "AddressSanitizer" in done.stderr:
            self.skipTest("another malloc")
        self.assertEqual(done.returncode, 0, done.stderr)
        # Ten allocations of 48 MB have 12288 pages each; only one of them may be new, and a few pages in
        # between.
        self.assertLess(int(done.stdout), 12288)

    def test_other_c_libraries(self):
        with mock.patch("ctypes.CDLL", return_value=object()):
            self.assertFalse(switchback.keep_freed_memory())


class Loading(unittest.TestCase):
    def test_versions(self):
        major, minor = switchback.abi_version()
        self.assertEqual(major, _abi.VERSION_MAJOR)
        self.assertGreaterEqual(minor, _abi.VERSION_MINOR)
        self.assertRegex(switchback.library_version(), r"^\d+\.\d+\.\d+")
        self.assertTrue(switchback.library_path())

    def test_abi_of_another_version(self):
        major, minor = _abi.VERSION_MAJOR, 2
        with mock.patch.object(_abi, "VERSION_MINOR", minor):
            for good in ((major, minor), (major, minor + 1), (major, 65535)):
                _library.check_abi(library_of_version(*good), "a.so")
            for bad in ((major, minor - 1), (major + 1, minor), (0, minor)):
                with self.assertRaises(switchback.LibraryError) as caught:
                    _library.check_abi(library_of_version(*bad), "a.so")
                for word in ("a.so", f"{bad[0]}.{bad[1]}", f"{major}.{minor}"):
                    self.assertIn(word, str(caught.exception))
        with self.assertRaisesRegex(ImportError, "not libswitchback"):
            _library.check_abi(object(), "a.so")

    def test_what_cannot_be_loaded(self):
        import _ctypes

        with tempfile.TemporaryDirectory() as folder:
            missing, text = os.path.join(folder, "missing.so"), os.path.join(folder, "text.so")
            with open(text, "w", encoding="utf-8") as file:
                file.write("no library")
            for path in (missing, text, _ctypes.__file__):
                script = "import switchback; switchback.library_version()"
                done = run_python("-c", script, env={"SWITCHBACK_LIBRARY": path})
                self.assertEqual(done.returncode, 1, done.stderr)
                for said in ("LibraryError", path, "Set SWITCHBACK_LIBRARY"):
                    self.assertIn(said, done.stderr)
            self.assertIn("not libswitchback", done.stderr)

    def test_layers_without_torch(self):
        done = run_python("-c", "import sys; sys.modules['torch'] = None; import switchback.nn")
        self.assertIn("switchback.nn needs PyTorch 1.13", done.stderr)

    def test_import_loads_neither_torch_nor_the_library(self):
        script = "import sys, switchback; dir(switchback); assert 'torch' not in sys.modules"
        done = run_python("-c", script, env={"SWITCHBACK_LIBRARY": "/nowhere"})
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_what_is_installed(self):
        done = run_python("-m", "switchback", env={"SWITCHBACK_LIBRARY": switchback.library_path()})
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in (switchback.__version__, switchback.library_path(), "numpy", "cpu"):
            self.assertIn(word, done.stdout)
        done = run_python("-m", "switchback", env={"SWITCHBACK_LIBRARY": "/nowhere"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere", done.stderr)

    def test_unknown_attribute(self):
        with self.assertRaises(AttributeError):
            switchback.no_such_name  # noqa: B018

    def test_statuses(self):
        kinds = {1: ValueError, 2: NotImplementedError, 3: MemoryError, 5: OSError, 9: RuntimeError}
        for status, kind in kinds.items():
            with self.assertRaises(kind) as caught:
                _library.check(status)
            self.assertIsInstance(caught.exception, switchback.Error)
        self.assertEqual(switchback.OutOfMemory("").status, "out_of_memory")
        _library.check(0)


class Threads(unittest.TestCase):
    def tearDown(self):
        switchback.set_num_threads(1)

    def test_set_num_threads(self):
        x = np.random.default_rng(0).standard_normal((50, 70)).astype(np.float32)
        before = ops.quantize_rowwise(x)
        for count in (2, 1):
            switchback.set_num_threads(count)
            self.assertEqual(switchback.get_num_threads(), count)
            for a, b in zip(before, ops.quantize_rowwise(x)):
                np.testing.assert_array_equal(a, b)
        for bad in (-1, 1.5, "2", True):
            with self.assertRaises(ValueError):
                switchback.set_num_threads(bad)

    def test_many_python_threads(self):
        rng = np.random.default_rng(1)

        def work(x, want):
            for turn in range(50):
                if turn == 25:
                    switchback.set_num_threads(1)  # retires the context that other threads are using
                for got, wanted in zip(ops.quantize_rowwise(x), want):
                    np.testing.assert_array_equal(got, wanted)

        inputs = [rng.standard_normal((20 + i, 30)).astype(np.float32) for i in range(4)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, inputs, map(ops.quantize_rowwise, inputs)))


_FOLLOW = """
import torch, switchback, switchback.nn
torch.set_num_threads(2)
layer = switchback.nn.SwitchBackLinear(70, 50).eval()
x = torch.randn(20, 70)
y = layer(x)
assert switchback.get_num_threads() == 2
torch.set_num_threads(1)
again = layer(x)
assert switchback.get_num_threads() == 1, switchback.get_num_threads()
assert torch.equal(again, y)
y.sum().backward()
torch.set_num_threads(2)
switchback.quantize_rowwise(x)
assert switchback.get_num_threads() == 2
switchback.set_num_threads(1)  # from here on it is this
torch.set_num_threads(2)
layer(x)
assert switchback.get_num_threads() == 1
"""


class FollowsTorch(unittest.TestCase):
    def test_the_number_of_threads(self):
        require_torch()
        done = run_python("-c", _FOLLOW, env={"OMP_NUM_THREADS": "2"})
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_threads_with_numbers_of_their_own_do_not_take_turns(self):
        fake = types.SimpleNamespace(get_num_threads=lambda: numbers[threading.get_ident()])
        numbers = {threading.get_ident(): 4}
        found = []

        def other():
            numbers[threading.get_ident()] = 2
            found.extend(_context._torch_threads_changed(4) for _ in range(3))

        seen = mock.patch.object(_context, "_seen", threading.local())
        with mock.patch.dict("sys.modules", torch=fake), seen:
            self.assertFalse(_context._torch_threads_changed(4))
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            # Its number is 2 from now on, which counts as one change.
            self.assertEqual(found, [True, False, False])
            self.assertFalse(_context._torch_threads_changed(2))
            numbers[threading.get_ident()] = 3
            self.assertTrue(_context._torch_threads_changed(2))


class TorchsMemory(unittest.TestCase):
    """The library allocates from torch's caching allocator; both are replaced by test doubles."""

    def setUp(self):
        self.cuda = mock.Mock()
        self.cuda.caching_allocator_alloc.return_value = 0x1000
        patch = mock.patch.dict("sys.modules", torch=types.SimpleNamespace(cuda=self.cuda))
        patch.start()
        self.addCleanup(patch.stop)
        options = _abi.ContextOptions(device=b"cuda:3", **_cuda_memory.options_for(3))
        self.user = options.allocator_user
        self.allocate = _cuda_memory._Allocate(options.allocate)
        self.release = _cuda_memory._Release(options.release)

    def check(self, stream, torchs_stream, released_on, *waits):
        self.cuda.reset_mock()
        address = self.allocate(self.user, 512, stream)
        self.assertEqual(address, 0x1000)
        self.release(self.user, address, 512, released_on)
        allocated = mock.call.caching_allocator_alloc(512, 3, torchs_stream)
        deleted = mock.call.caching_allocator_delete(address)
        self.assertEqual(self.cuda.mock_calls, [allocated, *waits, deleted])
        self.assertEqual(_cuda_memory._stream_of, {})

    def test_in_the_order_of_a_stream(self):
        self.check(7, 7, 7)

    def test_the_legacy_stream_is_torchs_default(self):
        self.check(1, 0, 1)

    def test_another_stream_is_waited_for(self):
        other = mock.call.ExternalStream(8, device=3)
        self.check(7, 7, 8, other, other.synchronize())

    def test_a_context_that_is_gone(self):
        self.check(7, 7, None, mock.call.synchronize(3))

    def test_no_exception_leaves(self):
        address = self.allocate(self.user, 512, 7)
        self.cuda.caching_allocator_alloc.side_effect = RuntimeError("CUDA out of memory")
        self.cuda.caching_allocator_delete.side_effect = RuntimeError("no")
        self.assertIsNone(self.allocate(self.user, 512, 7))
        self.release(self.user, address, 512, 7)
        _cuda_memory._stream_of.clear()


class Streams(unittest.TestCase):
    """How a context for a CUDA device is set up; library and torch are replaced by test doubles."""

    def test_the_callers_stream_is_followed(self):
        context = Context("cpu", 1)
        context.stream = 7
        fake = mock.Mock()
        fake.switchback_context_set_stream.return_value = 0
        with mock.patch.object(_context, "library", lambda: fake):
            for stream in (7, 8, 8, 9, 8):
                with mock.patch.object(_context, "_current_stream", lambda device, s=stream: s):
                    context.enter()
        calls = [call.args for call in fake.switchback_context_set_stream.call_args_list]
        self.assertEqual(calls, [(context.pointer, s) for s in (8, 9, 8)])

    def test_the_legacy_stream_has_a_name(self):
        for given, want in ((0, 1), (5, 5)):
            functions = types.SimpleNamespace(_cuda_getCurrentRawStream={3: given}.get)
            with mock.patch.dict("sys.modules", torch=types.SimpleNamespace(_C=functions)):
                self.assertEqual(_context._current_stream(3), want)

    def test_layers_are_destroyed_by_whoever_holds_the_context(self):
        context = Context("cpu", 1)
        destroyed = []
        fake = types.SimpleNamespace(switchback_linear_destroy=destroyed.append)
        with mock.patch.object(_context, "library", lambda: fake):
            context.destroy_layer(1)
            self.assertEqual(destroyed, [1])
            with context.lock:
                # A finalizer in another thread must not wait for the lock.
                thread = threading.Thread(target=context.destroy_layer, args=(2,))
                thread.start()
                thread.join(30)
                self.assertFalse(thread.is_alive())
                self.assertEqual(destroyed, [1])
                context.destroy_dead_layers()
            self.assertEqual(destroyed, [1, 2])


_FORK = """
import os, sys, signal
import numpy as np
import switchback
from switchback import ops
switchback.set_num_threads(2)
x = np.random.default_rng(0).standard_normal((3000, 700)).astype(np.float32)
want = ops.quantize_rowwise(x)
child = os.fork()
if child == 0:
    signal.alarm(60)  # OpenMP's threads are not here: waiting for them would take forever
    assert switchback.get_num_threads() == 1
    got = ops.quantize_rowwise(x)
    assert all(np.array_equal(a, b) for a, b in zip(got, want))
    switchback.set_num_threads(1)
    try:
        switchback.set_num_threads(2)
    except switchback.Error as error:
        assert "fork" in str(error)
    else:
        raise AssertionError("two threads after a fork")
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert all(np.array_equal(a, b) for a, b in zip(ops.quantize_rowwise(x), want))
"""


_FORK_WITH_TORCH = """
import os, sys, signal, warnings
import torch
import switchback.nn
torch.set_num_threads(2)
layer = switchback.nn.SwitchBackLinear(256, 256)
x = torch.randn(64, 256, requires_grad=True)
def step():
    layer.weight.grad = layer.bias.grad = None
    (layer(x).relu() @ torch.ones(256, 256)).square().sum().backward()
    return layer.weight.grad.clone()
want = step()
child = os.fork()
if child == 0:
    signal.alarm(60)  # neither torch's OpenMP threads nor the library's are here
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = step()
    assert [w for w in caught if "spawn" in str(w.message)], caught
    assert torch.get_num_threads() == 1
    assert torch.allclose(got, want, rtol=1e-3, atol=1e-3 * float(want.abs().max()))
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
step()
"""


@unittest.skipUnless(hasattr(os, "fork"), "no fork here")
class Fork(unittest.TestCase):
    def test_torch_in_the_child(self):
        require_torch()
        done = run_python("-c", _FORK_WITH_TORCH, env={"OMP_NUM_THREADS": "2"})
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_child_and_parent_go_on(self):
        done = run_python("-c", _FORK)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
