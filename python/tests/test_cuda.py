# SPDX-License-Identifier: Apache-2.0
"""Tests on a GPU: the layers compared with the CPU, CUDA graphs, and torch's allocator. Skipped without a
GPU."""

import unittest

from support import TensorCase, cuda_is_usable, relative_error, require_torch, results_of

torch = require_torch()

from switchback import nn as sb  # noqa: E402


@unittest.skipUnless(cuda_is_usable(), "no GPU that torch and the library can use")
class Cuda(TensorCase):
    K, N, M = 256, 320, 64

    def setUp(self):
        super().setUp()
        self.x = torch.randn(self.M, self.K, device="cuda")

    def layer(self, **options):
        return sb.SwitchBackLinearVectorwise(self.K, self.N, device="cuda", **options)

    def test_forward_and_backward_are_those_of_the_cpu(self):
        layer = self.layer()
        twin = sb.SwitchBackLinearVectorwise(self.K, self.N)
        twin.load_state_dict(layer.state_dict())
        g = torch.randn(self.M, self.N)
        on_cpu = results_of(twin, self.x.cpu(), g)
        for got, want in zip(results_of(layer, self.x, g.cuda()), on_cpu):
            # Codes are equal. Floating point sums may be added in another order, or have the 10 mantissa
            # bits of TF32.
            self.assertLess(relative_error(got.cpu(), want), 2e-3)

    def test_a_change_behind_autograd(self):
        layer = self.layer().eval()
        with torch.no_grad():
            layer(self.x)
            y = layer(self.x)
            layer.weight.data.mul_(-2.0)
            layer.bias.data.zero_()
            want = torch.nn.functional.linear(self.x, layer.weight)
            self.assertLess(relative_error(layer(self.x), want), 0.05)  # the error of int8 itself is 0.01
            self.assertFalse(torch.equal(layer(self.x), y))

    def captured(self, run):
        """Captures run() in a CUDA graph, after runs outside of it that allocate the memory that it needs."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # it captures on its own stream
            result = run()
        return graph, result

    def test_a_graph_of_inference(self):
        for prepared in (False, True):
            layer = self.layer().eval()
            if prepared:
                layer.prepare_for_eval()
            x = self.x.clone()
            with torch.no_grad():
                graph, y = self.captured(lambda m=layer, t=x: m(t))
                for _ in range(3):
                    x.normal_()
                    graph.replay()
                    self.equal(y.clone(), layer(x))

    def test_a_graph_of_a_training_step(self):
        layer = self.layer()
        twin = self.layer()
        twin.load_state_dict(layer.state_dict())
        x = self.x.clone()

        def step():
            for parameter in layer.parameters():
                if parameter.grad is not None:
                    parameter.grad.zero_()
            loss = layer(x).square().mean()
            loss.backward()
            return loss

        graph, loss = self.captured(step)
        for _ in range(3):
            x.normal_()
            with torch.no_grad():
                layer.weight.mul_(0.9)
                twin.weight.copy_(layer.weight)
            graph.replay()
            twin.zero_grad()
            want = twin(x).square().mean()
            want.backward()
            # Floating point sums may be added in another order, or have the 10 mantissa bits of TF32.
            self.assertLess(relative_error(loss, want), 2e-3)
            self.assertLess(relative_error(layer.weight.grad, twin.weight.grad), 2e-3)

    def test_graphed_callables(self):
        layer = self.layer()
        twin = self.layer()
        twin.load_state_dict(layer.state_dict())
        graphed = torch.cuda.make_graphed_callables(layer, (self.x.clone().requires_grad_(),))
        for _ in range(3):
            x = torch.randn_like(self.x).requires_grad_()
            y, want = graphed(x), twin(x)
            self.assertLess(relative_error(y, want), 2e-3)
            (got,) = torch.autograd.grad(y.sum(), x)
            (dx,) = torch.autograd.grad(want.sum(), x)
            self.assertLess(relative_error(got, dx), 2e-3)

    def test_scratch_memory_is_torchs(self):
        before = torch.cuda.memory_allocated()
        layer = sb.SwitchBackLinear(4096, 4096, device="cuda")
        parameters = torch.cuda.memory_allocated() - before
        with torch.no_grad():
            layer(torch.randn(64, 4096, device="cuda"))
        self.assertGreater(torch.cuda.memory_allocated() - before, parameters + 4096 * 4096 // 2)


if __name__ == "__main__":
    unittest.main()
