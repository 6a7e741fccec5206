# SPDX-License-Identifier: Apache-2.0
"""A trainer and a serving engine whose layers use the same int8 products must compute the same bits."""

import itertools
import unittest

from support import require_torch

torch = require_torch()

from switchback import nn as sb  # noqa: E402
from switchback.interop.serving import SwitchBackLinearMethod  # noqa: E402
from torch import nn  # noqa: E402


class Served(nn.Module):
    """A linear module like those of serving engines: a weight of several matrices, and a method object."""

    def __init__(self, method, inputs, outputs, dtype):
        super().__init__()
        self.method, size = method, sum(outputs)
        method.create_weights(self, inputs, outputs, inputs, size, dtype, weight_loader=self.load)
        self.bias = nn.Parameter(torch.zeros(size, dtype=dtype))

    def load(self, parameter, weight, row):
        parameter.data[row : row + weight.shape[0]].copy_(weight)

    def forward(self, x):
        return self.method.apply(self, x, self.bias)


class Serving(unittest.TestCase):
    def test_bits_are_those_of_the_trainer(self):
        modes, dtypes = ("rowwise", "rowwise_shared"), (torch.float32, torch.bfloat16)
        for mode, dtype in itertools.product(modes, dtypes):
            torch.manual_seed(0)
            trained = [sb.SwitchBackLinear(48, n, mode=mode, dtype=dtype) for n in (80, 31)]
            method = SwitchBackLinearMethod()
            served, x, row = Served(method, 48, [80, 31], dtype), torch.randn(6, 9, 48, dtype=dtype), 0
            for layer in trained:
                served.weight.weight_loader(served.weight, layer.weight, row)
                row += layer.out_features
            for _ in range(2):  # twice, as engines that reload weights call it
                method.process_weights_after_loading(served)
            self.assertNotIn("weight", served.state_dict())
            place = served.W_int8.data_ptr()

            def whole(name, layers=trained):
                return torch.cat([getattr(layer, name).detach() for layer in layers])

            for step in range(3):
                if step > 0:
                    for layer in trained:
                        layer.weight.data.mul_(-0.5).add_(0.1)
                        layer.bias.data.add_(1)
                    method.update_weights(served, whole("weight"))
                served.bias.data.copy_(whole("bias"))
                want = torch.cat([layer(x).detach() for layer in trained], -1)
                for rows, length in (([2], 1), ([5, 2], 4), ([1, 0, 3, 2, 4, 5, 1], 9)):
                    with torch.inference_mode():  # prefixes of some sequences
                        got = served(x[rows, :length])
                    self.assertTrue(torch.equal(got, want[rows, :length]), (mode, dtype, rows))
            self.assertEqual(served.W_int8.data_ptr(), place)

    def test_what_is_refused(self):
        method, module = SwitchBackLinearMethod(), nn.Module()
        with self.assertRaisesRegex(Exception, "input_size_per_partition = 8.*16"):
            method.create_weights(module, 8, [4], 16, 4, torch.float32)
        with self.assertRaisesRegex(TypeError, "params_dtype = torch.float64"):
            method.create_weights(module, 16, [4], 16, 4, torch.float64)
        method.create_weights(module, 16, [4], 16, 4, torch.float32)
        with self.assertRaisesRegex(Exception, "process_weights_after_loading"):
            method.apply(module, torch.zeros(1, 16))
        method.process_weights_after_loading(module)
        with self.assertRaisesRegex(ValueError, r"\(4, 15\).*\(4, 16\)"):
            method.update_weights(module, torch.zeros(4, 15))


if __name__ == "__main__":
    unittest.main()
