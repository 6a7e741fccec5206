# SPDX-License-Identifier: Apache-2.0
"""Calls from several threads at once: no call waits for a large one, the bits are the same, and codes that
are shared exist once."""

import contextlib
import functools
import itertools
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from support import TensorCase, require_torch

torch = require_torch()

import switchback  # noqa: E402
from switchback import _context  # noqa: E402
from switchback import nn as sb  # noqa: E402

K, N = 96, 80


@contextlib.contextmanager
def busy():
    """A context manager, inside of which another thread uses the CPU context, so that calls use an extra one.
    """
    context = _context.context_for("cpu")
    held, done = threading.Event(), threading.Event()

    def hold():
        with context.lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        yield context
    finally:
        done.set()
        thread.join()


def is_free(context):
    """Whether no thread is using a context."""
    if not context.lock.acquire(blocking=False):
        return False
    context.lock.release()
    return True


def passes(layer, x, g, in_forward=contextlib.nullcontext, in_backward=contextlib.nullcontext):
    """The output of a layer and all gradients; each pass runs inside a context manager."""
    with in_forward():
        y = layer(x)
    with in_backward():
        return y.detach(), *torch.autograd.grad(y, (x, *layer.parameters()), g)


class Threads(TensorCase):
    def test_a_small_call_ends_while_a_large_one_runs(self):
        large = sb.prepare_for_eval(sb.SwitchBackLinear(1024, 1024))
        for layer in (sb.SwitchBackLinear(K, N), sb.prepare_for_eval(sb.SwitchBackLinear(K, N))):
            for trains in (False, True):
                with self.subTest(prepared=layer.is_prepared, trains=trains):
                    call = functools.partial(layer, torch.randn(4, K, requires_grad=trains))
                    self.assertTrue(self._small_in_large(call, large, call().detach()))
        codes = torch.randint(-127, 128, (4, K), dtype=torch.int8)
        scales = torch.ones(4)
        operation = functools.partial(switchback.dequantize_rowwise, codes, scales)
        self.assertTrue(self._small_in_large(operation, large, operation()))

    def _small_in_large(self, small, large, want):
        """Whether a small call can begin and end while a large call holds its context."""
        rows = 2048
        context = _context.context_for("cpu")
        # On a busy machine the large call may end first; then it gets more rows.
        for _ in range(6):
            x = torch.randn(rows, 1024)
            thread = threading.Thread(target=torch.no_grad()(large), args=(x,))
            thread.start()
            while is_free(context) and thread.is_alive():
                time.sleep(0.0002)
            y = small()
            during = not is_free(context)
            thread.join()
            self.assertTrue(torch.equal(y.detach(), want))
            if during:
                return True
            rows *= 2
        return False

    def test_an_extra_context_gives_the_same_bits(self):
        modes = "rowwise", "rowwise_shared", "global", "standard", "auto"
        nothing = contextlib.nullcontext
        for mode, dtype in itertools.product(modes, (torch.float32, torch.bfloat16)):
            layer = sb.SwitchBackLinear(K, N, mode=mode, dtype=dtype)
            x = torch.randn(9, K, dtype=dtype, requires_grad=True)
            g = torch.randn(9, N, dtype=dtype)
            want = passes(layer, x, g)
            # The bits are the same on whichever context forward and backward run.
            for in_forward, in_backward in itertools.product((nothing, busy), repeat=2):
                with self.subTest(mode=mode, dtype=dtype):
                    self.equal(passes(layer, x, g, in_forward, in_backward), want)
            with torch.no_grad(), busy():
                self.equal([layer(x)], want[:1])

    def test_every_context_sees_every_change_of_the_weight(self):
        layer = sb.SwitchBackLinear(K, N)
        x, g = torch.randn(5, K, requires_grad=True), torch.randn(5, N)

        def fresh():
            other = sb.SwitchBackLinear(K, N)
            other.load_state_dict(layer.state_dict())
            return passes(other, x, g)

        def train():
            return passes(layer, x, g)

        def infer():
            with torch.no_grad():
                return (layer(x),)

        def infer_with_reuse():
            with sb.reuse_weight_codes():
                return infer()

        changes = (
            lambda: layer.weight.data.mul_(1.5),
            lambda: layer.weight.detach().numpy().__imul__(0.7),
            lambda: torch.nn.init.normal_(layer.weight),
        )
        # First each context gets codes of a weight that is then changed.
        for change in changes:
            for used in (infer, train):
                used()
                with busy():
                    used()
                change()
                want = fresh()
                with busy():
                    self.equal(infer_with_reuse(), want[:1])
                    self.equal(infer(), want[:1])
                    self.equal(train(), want)
                self.equal(train(), want)
                self.equal(infer(), want[:1])
                change()
                # Forward uses the codes of one context, backward those of another.
                self.equal(passes(layer, x, g, in_backward=busy), fresh())

    def test_prepared_codes_are_there_once(self):
        layer = sb.prepare_for_eval(sb.SwitchBackLinear(K, N))
        x, g = torch.randn(5, K, requires_grad=True), torch.randn(5, N)
        want = layer(x)
        held = layer._layers.cached_bytes()
        self.assertGreaterEqual(held, K * N)
        (want_dx,) = torch.autograd.grad(want, x, g)
        with busy() as context:
            y = layer(x)
            self.equal([y], [want])
            self.equal(torch.autograd.grad(y, x, g), [want_dx])
            extras = [each for each in layer._layers._layers.values() if each.context.is_extra]
            self.assertEqual(len(extras), 1)
            self.assertIs(extras[0].context._of, context)
            codes_of_dx = extras[0].cached_bytes() - held
        # Each of the two layers that compute dX makes codes for it.
        self.assertEqual(layer._layers.cached_bytes(), held + 2 * codes_of_dx)

    def test_other_codes_reach_every_context(self):
        layer = sb.prepare_for_eval(sb.SwitchBackLinear(K, N))
        x = torch.randn(5, K)
        for change in (
            lambda: layer.W_int8.clamp_(-9, 9),
            lambda: (layer.state_W.data.mul_(2), layer.weight_updated()),
            lambda: layer.bias.detach().add_(1),
        ):
            layer(x)
            with busy():
                layer(x)
            change()
            other = sb.prepare_for_eval(sb.SwitchBackLinear(K, N))
            other.load_state_dict(layer.state_dict())
            want = other(x)
            with busy():
                self.equal([layer(x)], [want])
            self.equal([layer(x)], [want])

    def test_a_first_call_does_not_wait(self):
        layer = sb.SwitchBackLinear(K, N)
        prepared = sb.prepare_for_eval(sb.SwitchBackLinear(K, N))
        x = torch.randn(3, K)
        with busy():
            got = layer(x), prepared(x)
        self.equal(got, (layer(x), prepared(x)))

    def test_contexts_are_bounded(self):
        layer = sb.prepare_for_eval(sb.SwitchBackLinear(256, 256))
        x = torch.randn(64, 256)
        with torch.no_grad():
            want = layer(x)
        held = layer._layers.cached_bytes()

        begin = threading.Barrier(24)

        def work():
            with torch.no_grad():
                for _ in range(20):
                    self.assertTrue(torch.equal(layer(x), want))

        def work_together(_):
            begin.wait()
            work()

        with ThreadPoolExecutor(24) as pool:
            list(pool.map(work_together, range(24)))
        context = _context.context_for("cpu")
        self.assertLessEqual(len(context._extras), _context.MOST_EXTRAS)
        self.assertEqual(layer._layers.cached_bytes(), held)
        # If all contexts are in use, a call waits for the first one that becomes free.
        with busy(), contextlib.ExitStack() as stack:
            taken, done = [], threading.Event()

            def hold():
                mine = _context.context_for("cpu").take()
                taken.append(mine)
                done.wait()
                mine.lock.release()

            threads = [threading.Thread(target=hold) for _ in range(_context.MOST_EXTRAS)]
            for thread in threads:
                thread.start()
                stack.callback(thread.join)
            stack.callback(done.set)
            while len(taken) < _context.MOST_EXTRAS:
                time.sleep(0.0002)
            self.assertEqual(len(context._extras), _context.MOST_EXTRAS)
            waiting = threading.Thread(target=work)
            waiting.start()
            waiting.join(0.05)
            self.assertTrue(waiting.is_alive())
            stack.close()
            waiting.join()

    def test_extra_contexts_go_with_the_one_in_use(self):
        layer = sb.prepare_for_eval(sb.SwitchBackLinear(K, N))
        x = torch.randn(3, K)
        want = layer(x)
        with busy() as context:
            layer(x)
            self.assertTrue(context._extras)
        before = _context._num_threads
        try:
            switchback.set_num_threads(context.threads())
            self.equal([layer(x)], [want])
            self.assertTrue(all(each.retired for each in context._extras))
            with busy():
                self.equal([layer(x)], [want])
            self.assertTrue(all(not key[1].retired for key in layer._layers._layers))
        finally:
            switchback.set_num_threads(0 if before is None else before)
            _context._num_threads = before


if __name__ == "__main__":
    unittest.main()
