# SPDX-License-Identifier: Apache-2.0
"""Training with several processes on this machine, and layers that are divided into shards."""

import contextlib
import json
import os
import socket
import sys
import tempfile
import unittest

from support import (
    DIGITS,
    PACKAGE,
    TensorCase,
    require_torch,
    results_of,
    run_python,
    torch_at_least,
)

torch = require_torch()

from switchback import nn as sb  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(PACKAGE, "examples")
HAS_GLOO = (
    torch.distributed.is_available() and torch.distributed.is_gloo_available()
    if hasattr(torch.distributed, "is_gloo_available")
    else torch.distributed.is_available()
)


def free_port():
    """A free port: below the system's ephemeral ports, and different in each process."""
    first, count = 20000, 10000
    for turn in range(count):
        port = first + (os.getpid() + 100 * turn) % count
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
    raise unittest.SkipTest(f"no port from {first} to {first + count - 1} is free")


def torchrun(*arguments, processes=2):
    # A static rendezvous and not --standalone, which has heartbeats of 5 s and gives up if the machine is
    # too busy.
    options = ["-m", "torch.distributed.run", f"--nproc_per_node={processes}"]
    options += ["--rdzv_backend=static", "--master_addr=127.0.0.1", f"--master_port={free_port()}"]
    if sys.version_info >= (3, 11) and not torch_at_least(2, 0):
        # With these versions of Python and torch, torchrun fails with its own defaults for these options.
        options += ["--redirects=0:1", "--tee=0:2"]
    return run_python(*options, *arguments)


@unittest.skipUnless(HAS_GLOO, "this torch has no gloo")
class DataParallel(unittest.TestCase):
    @unittest.skipUnless(os.path.exists(DIGITS), "the digits are not there")
    def test_two_processes_train_as_one_does(self):
        script = os.path.join(EXAMPLES, "ddp.py")
        results = []
        with tempfile.TemporaryDirectory() as folder:
            for launch, extra in ((run_python, ()), (torchrun, ()), (torchrun, ("--accumulate=2",))):
                out = os.path.join(folder, "out.json")
                layer = ("--layer", "SwitchBackLinearVectorwise")
                done = launch(script, "--data", DIGITS, "--steps", "10", *layer, "--out", out, *extra)
                # The exit status is not checked: gloo's threads sometimes abort a process that ends, also
                # with torch's own layers.
                self.assertTrue(os.path.exists(out), done.stdout + done.stderr)
                with open(out, encoding="utf-8") as file:
                    results.append(json.load(file)["losses"])
                os.remove(out)
        one, *others = results
        self.assertLess(one[-1], one[0])
        # Inputs and gradients are quantized row by row, and halving the batch doubles gradients exactly: in
        # each step all products except dW = G^T X have the same bits. dW is summed in two parts, so it
        # differs by about 2^-24 of its size, and with it the weights. A weight that is this close to the
        # border between two codes changes by 1 / 127 of its scale. With some 80,000 weights, 10 steps, and
        # roundings of 2^-24 * 127 of a code, of the order of 10 codes change, each moving a loss of 2.3 by
        # less than 1e-5.
        for other in others:
            for a, b in zip(one, other):
                self.assertLess(abs(a - b), 1e-4)

    def test_gradients_are_those_without_it(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "ok")
            done = torchrun(os.path.join(HERE, "data_parallel_worker.py"), out)
            # The exit status is not checked, as above.
            self.assertTrue(os.path.exists(out), done.stdout + done.stderr)


class Shards(TensorCase):
    def test_rows_of_a_rowwise_weight(self):
        """Tensor parallelism without the library's parallel layers: each process has rows of W.

        W has one scale per row, so a process computes its slice of the result, to the bit.
        """
        x, g = torch.randn(6, 40), torch.randn(6, 24)
        whole = sb.SwitchBackLinearVectorwise(40, 24)
        y, _, dw, _ = results_of(whole, x, g)
        for rows in (slice(0, 8), slice(8, 24)):
            part = sb.SwitchBackLinearVectorwise(40, rows.stop - rows.start)
            part.load_state_dict({name: t[rows] for name, t in whole.state_dict().items()})
            z, _, dw_of_rows, _ = results_of(part, x, g[:, rows])
            self.equal(z, y[:, rows])
            # Columns of G give independent rows of dW. The blocking of the product may add in another
            # order: 6 terms below 10 each, a few roundings.
            self.assertLess(float((dw_of_rows - dw[rows]).abs().max()), 60 * 2.0**-22)
            # dX differs from that of the whole layer: G and the columns of W have other scales in each shard.


@unittest.skipUnless(HAS_GLOO and torch_at_least(2, 6), "sharding on the CPU needs torch 2.6")
class Sharded(unittest.TestCase):
    def test_fully_sharded_data_parallel(self):
        done = torchrun(os.path.join(HERE, "fsdp_worker.py"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
