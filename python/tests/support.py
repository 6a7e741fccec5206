# SPDX-License-Identifier: Apache-2.0
"""Functions that the tests share: paths, NumPy references, and running other processes."""

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import unittest
from unittest import mock

import numpy as np

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(PACKAGE)
DIGITS = os.path.join(ROOT, "data", "digits", "digits.csv")


def require_torch():
    """Imports torch; skips the test module if torch is missing."""
    try:
        import torch
    except ImportError as error:
        raise unittest.SkipTest(f"torch is not installed: {error}") from error
    return torch


class TensorCase(unittest.TestCase):
    """Seeds torch before each test, and compares tensors to the bit."""

    def setUp(self):
        require_torch().manual_seed(0)

    def equal(self, got, want, words=None):
        """Asserts that two tensors, or all pairs of two lists, have the same dtype, shape and bits."""
        if isinstance(want, (list, tuple)):
            self.assertEqual(len(got), len(want), words)
            for place, pair in enumerate(zip(got, want)):
                self.equal(*pair, f"result {place} differs" if words is None else words)
            return
        self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape), words)
        self.assertTrue(require_torch().equal(got, want), words)

    def identical(self, got, want):
        """Asserts that two lists of tensors are equal() and have the same strides."""
        self.equal(got, want)
        self.assertEqual([tensor.stride() for tensor in got], [tensor.stride() for tensor in want])


def results_of(module, x, g, call=None):
    """Runs a module, or call(x), and its backward: returns y and the gradients of x and of each parameter.

    The parameters have no gradients afterwards.
    """
    module.zero_grad(set_to_none=True)
    x = x.detach().requires_grad_()
    y = module(x) if call is None else call(x)
    y.backward(g.to(y.dtype))
    results = [y.detach(), x.grad, *(parameter.grad for parameter in module.parameters())]
    module.zero_grad(set_to_none=True)
    return results


def torch_at_least(major, minor):
    import torch

    version = tuple(
        int(part) for part in torch.__version__.split("+")[0].split("a")[0].split(".")[:2]
    )
    return version >= (major, minor)


def cuda_is_usable():
    """Whether torch has a GPU and the library can use it."""
    import torch

    import switchback

    if not torch.cuda.is_available():
        return False
    try:
        switchback.quantize_rowwise(torch.ones(2, 2, device="cuda"))
    except switchback.Error:
        return False
    return True


def builds_dispatch():
    """Whether the compiled dispatch can be built here, and be used with this torch."""
    return (
        os.path.exists(os.path.join(ROOT, "include", "switchback", "switchback.h"))
        and importlib.util.find_spec("torch") is not None
        and torch_at_least(2, 10)
        and sys.version_info >= (3, 10)
        and importlib.util.find_spec("setuptools") is not None
        and os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
        and shutil.which(os.environ.get("CXX", "c++")) is not None
    )


@contextlib.contextmanager
def compiled_calls(seen):
    """Calls seen(name, result) for each call that the compiled dispatch handles, if it is available."""
    from switchback.nn import _dispatch, _function

    class Watched:
        def __getattr__(self, name):
            function = getattr(_dispatch.native, name)

            def call(*arguments):
                result = function(*arguments)
                if result is not None:
                    seen(name, result)
                return result

            return call

    with mock.patch.object(_function, "native", Watched() if _dispatch.native else None):
        yield


def run_python(*arguments, **options):
    """Runs a script with this Python interpreter, like run_program."""
    return run_program(sys.executable, *arguments, **options)


def run_program(*arguments, env=None, timeout=900, cwd=None):
    """Runs a program with one thread of every kind; returns the result of subprocess.run."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=PACKAGE)
    environment.update(env or {})
    return subprocess.run(
        arguments,
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def absmax_of(x, axis):
    """The scale of each group of elements, in float32: NaN if the group has a NaN, else Inf if it has an Inf.
    """
    return np.max(np.abs(x.astype(np.float32)), axis=axis)  # np.max propagates NaN


def codes_of(x, absmax):
    """The int8 codes of x: round_half_even(127 * (x / absmax)) in float32; groups of zeros, NaN or Inf have
    codes 0."""
    usable = np.isfinite(absmax) & (absmax > 0)
    divisor = np.where(usable, absmax, np.float32(1)).astype(np.float32)
    with np.errstate(invalid="ignore"):
        scaled = np.float32(127) * (x.astype(np.float32) / divisor)
    return np.where(usable, np.rint(np.where(usable, scaled, 0)), 0).astype(np.int8)


def quantize_rows(x):
    absmax = absmax_of(x, 1)
    return codes_of(x, absmax[:, None]), absmax


def hadamard(group):
    """The dense matrix of a rotation with this group size: H4 ⊗ … ⊗ H4."""
    four = np.array([[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]]) / 2
    dense = np.ones((1, 1))
    while dense.shape[0] < group:
        dense = np.kron(dense, four)
    return dense


def relative_error(got, want):
    """The relative error of a tensor: ||got - want|| / ||want||."""
    got, want = got.detach().double(), want.detach().double()
    return float((got - want).norm() / want.norm())
