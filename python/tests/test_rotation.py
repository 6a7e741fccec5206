# SPDX-License-Identifier: Apache-2.0
"""Rotated int8 layers, compared with the separate operations; in training, preparation and checkpoints."""

import copy
import pickle
import unittest

from support import relative_error, require_torch

torch = require_torch()

from switchback import Error, ops  # noqa: E402
from switchback import nn as sb  # noqa: E402

K, N, GROUP = 128, 24, 64


def make(mode="rowwise", rotation=GROUP, **options):
    return sb.SwitchBackLinear(K, N, mode=mode, rotation=rotation, **options)


class Rotation(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(7, K)

    def test_prepared_layers_rotate_dx_back(self):
        torch.manual_seed(3)
        for mode in ("rowwise", "global"):
            with self.subTest(mode=mode):
                module = make(mode)
                x = torch.randn(9, K, requires_grad=True)
                g = torch.randn(9, N)
                exact = g @ module.weight.detach()
                module.prepare_for_eval()
                module(x).backward(g)
                # The codes of W and of G each have an error of about 1 %, as in forward.
                self.assertLess(relative_error(x.grad, exact), 0.03)

    def test_layer_is_a_plain_layer_of_rotated_operands(self):
        for mode in ("rowwise", "global"):
            for mem_efficient in (False, True):
                layer = make(mode, mem_efficient=mem_efficient)
                plain = sb.SwitchBackLinear(K, N, mode=mode)
                with torch.no_grad():
                    plain.weight.copy_(ops.rotate(layer.weight.detach(), GROUP))
                    plain.bias.copy_(layer.bias)
                x = self.x.clone().requires_grad_()
                rotated = ops.rotate(self.x, GROUP).requires_grad_()
                y, plain_y = layer(x), plain(rotated)
                self.assertTrue(torch.equal(y, plain_y))
                g = torch.randn_like(y)
                y.backward(g)
                plain_y.backward(g)
                self.assertTrue(torch.equal(x.grad, ops.rotate(rotated.grad, GROUP)))
                # dW is computed from x itself, or (mem_efficient) from codes with 127 steps of the largest
                # of 128 values.
                error = relative_error(layer.weight.grad, g.T @ self.x)
                self.assertLess(error, 0.02 if mem_efficient else 1e-6)

    def test_prepared_and_loaded_layers_keep_every_bit(self):
        for mode in ("rowwise", "global"):
            for dtype in (torch.float32, torch.bfloat16):
                layer = make(mode, dtype=dtype).eval()
                x = self.x.to(dtype)
                with torch.no_grad():
                    want = layer(x)
                    layer.prepare_for_eval()
                    self.assertTrue(torch.equal(layer(x), want))
                    other = make(mode, dtype=dtype).eval()
                    other.load_state_dict(layer.state_dict())
                    self.assertTrue(other.is_prepared)
                    for same in (other, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
                        self.assertTrue(torch.equal(same(x), want))

    def test_rejections(self):
        for options, message in (
            ({"rotation": 32}, "rotation = 32; it must be 0, 4, 16, 64, 256 or 1024"),
            ({"rotation": 256}, "in_features = 128; it must be a multiple of rotation, 256"),
            ({"mode": "standard"}, "rotation = 64 in mode 'standard'"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                make(**options)
        with self.assertRaisesRegex(Error, "K = 24; it must be a multiple"):
            ops.rotate(torch.randn(2, 24), 64)
        self.assertIn("rotation=64", repr(make()))


if __name__ == "__main__":
    unittest.main()
