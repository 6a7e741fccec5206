# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel with dw="int8_block", also under autocast and with checkpointing."""

import os
import unittest

from support import require_torch, torch_at_least

torch = require_torch()

from test_distributed import HAS_GLOO, HERE, torchrun  # noqa: E402


@unittest.skipUnless(HAS_GLOO, "this torch has no gloo")
@unittest.skipUnless(torch_at_least(2, 0), "autocast on CPUs as it is since torch 2")
class DataParallelInt8(unittest.TestCase):
    def test_gradients_are_those_without_it(self):
        done = torchrun(os.path.join(HERE, "data_parallel_worker.py"))
        # Not the exit status: gloo's threads sometimes abort a process that ends.
        self.assertIn("all gradients are those without DDP", done.stdout, done.stderr)


if __name__ == "__main__":
    unittest.main()
