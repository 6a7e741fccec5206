# SPDX-License-Identifier: Apache-2.0
"""The layers, optimizers and models of models/ against PyTorch, forward and backward.

models_layer_values (tests/models) computes them on values from a file; $SWITCHBACK_LAYER_VALUES is
that program.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "python", folder) for folder in ("", "tests", "benchmarks")]

from support import require_torch

torch = require_torch()
from torch.nn import functional

import decoder

PROGRAM = os.environ.get("SWITCHBACK_LAYER_VALUES", "")
# Of the largest value wanted. f32: sums of some hundred terms, each step rounded to 2^-24. bf16: a
# result is rounded to 2^-8 of itself, and made of rounded ones.
TOLERANCE = {"f32": 2e-5, "bf16": 2e-2}


def run_program(op, arrays, **options):
    """The program's arrays by name."""
    listed, data = [], []
    for name, values in arrays.items():
        values = np.ascontiguousarray(values.detach().numpy())
        values = values.astype(np.int32 if values.dtype.kind == "i" else np.float32)
        values = values.reshape(1, -1) if values.ndim < 2 else values.reshape(-1, values.shape[-1])
        dtype = "s32" if values.dtype == np.int32 else "f32"
        rows, cols = values.shape
        listed.append({"name": name, "dtype": dtype, "rows": rows, "cols": cols})
        data.append(values.tobytes())
    header = json.dumps({"op": op, "options": options, "arrays": listed})
    with tempfile.TemporaryDirectory() as directory:
        source, target = os.path.join(directory, "in"), os.path.join(directory, "out")
        with open(source, "wb") as file:
            file.write(header.encode() + b"\n" + b"".join(data))
        done = subprocess.run(
            [PROGRAM, source, target], capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        with open(target, "rb") as file:
            header = json.loads(file.readline())
            results = {}
            for of in header["arrays"]:
                count = of["rows"] * of["cols"]
                values = np.frombuffer(file.read(4 * count), np.float32)
                results[of["name"]] = torch.from_numpy(values.reshape(of["rows"], -1).copy())
    return results


def leaf(*shape, dtype="f32", scale=1.0):
    """Random values that have a gradient; those of bf16 are rounded to it."""
    values = torch.randn(*shape) * scale
    if dtype == "bf16":
        values = values.bfloat16().float()
    return values.requires_grad_()


@unittest.skipUnless(PROGRAM, "SWITCHBACK_LAYER_VALUES names no program")
class Models(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(int.from_bytes(self.id().encode(), "little") % 2**31)

    def expect(self, got, want, dtype="f32"):
        """Compares tensors by name; `want` in f64 or f32."""
        self.assertEqual(sorted(got), sorted(want))
        for name, value in want.items():
            value = value.detach().double().reshape(got[name].shape)
            largest = float(value.abs().max())
            error = float((got[name].double() - value).abs().max())
            self.assertLessEqual(error, TOLERANCE[dtype] * largest, f"{self.id()} {dtype} {name}")

    def for_dtypes(self, check):
        for dtype in ("f32", "bf16"):
            with self.subTest(dtype=dtype):
                check(dtype)

    def test_rms_norm(self):
        def check(dtype):
            x, add = leaf(70, 96, dtype=dtype), leaf(70, 96, dtype=dtype)
            gain, dy = leaf(96), leaf(70, 96, dtype=dtype)
            norm = decoder.RMSNorm(96)
            s = (x + add).bfloat16().float() if dtype == "bf16" else x + add
            s = s.detach().requires_grad_()
            norm.gain.data = gain.detach()
            y = norm(s)
            y.backward(dy)
            got = run_program("rms_norm", {"x": x, "add": add, "gain": gain, "dy": dy}, dtype=dtype)
            self.expect(got, {"y": y, "dx": s.grad, "dgain": norm.gain.grad}, dtype)

        self.for_dtypes(check)

    def test_layer_norm(self):
        def check(dtype):
            x, add = leaf(70, 96, dtype=dtype), leaf(70, 96, dtype=dtype)
            gain, bias, dy = leaf(96), leaf(96), leaf(70, 96, dtype=dtype)
            s = (x + add).bfloat16().float() if dtype == "bf16" else x + add
            s = s.detach().requires_grad_()
            y = functional.layer_norm(s, (96,), gain, bias, eps=1e-5)
            y.backward(dy)
            arrays = {"x": x, "add": add, "gain": gain, "bias": bias, "dy": dy}
            got = run_program("layer_norm", arrays, dtype=dtype)
            want = {"y": y, "dx": s.grad, "dgain": gain.grad, "dbias": bias.grad}
            self.expect(got, want, dtype)

        self.for_dtypes(check)

    def test_rope(self):
        batch, length, heads, dim = 2, 33, 3, 20

        def check(dtype):
            qkv = leaf(batch, length, 3, heads, dim, dtype=dtype)
            dy = leaf(batch, length, 3, heads, dim, dtype=dtype)
            cosines, sines = decoder.rotary_table(length, dim)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            rotated = [decoder.rotate(x, cosines, sines) for x in (q, k)]
            y = torch.stack((*rotated, v)).permute(1, 3, 0, 2, 4)
            y.backward(dy)
            arrays = {
                "qkv": qkv.reshape(batch * length, -1),
                "dy": dy.reshape(batch * length, -1),
                "cosines": cosines,
                "sines": sines,
            }
            got = run_program("rope", arrays, heads=heads, length=length, dtype=dtype)
            self.expect(got, {"y": y, "dqkv": qkv.grad}, dtype)

        self.for_dtypes(check)

    def test_attention(self):
        batch, heads = 2, 3

        def check(dtype):
            for length, dim in ((1, 4), (48, 16), (65, 20), (150, 64)):
                qkv = leaf(batch, length, 3, heads, dim, dtype=dtype)
                dout = leaf(batch, length, heads * dim, dtype=dtype)
                q, k, v = qkv.double().permute(2, 0, 3, 1, 4)
                scores = q @ k.transpose(-1, -2) / dim**0.5
                hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
                weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
                out = (weights @ v).transpose(1, 2).reshape(batch, length, heads * dim)
                out.backward(dout.double())
                arrays = {"qkv": qkv.reshape(batch * length, -1), "dout": dout}
                got = run_program("attention", arrays, heads=heads, length=length, dtype=dtype)
                self.expect(got, {"out": out, "dqkv": qkv.grad}, dtype)

        self.for_dtypes(check)

    def test_swiglu(self):
        def check(dtype):
            gate_up, dh = leaf(9, 150, dtype=dtype, scale=3), leaf(9, 75, dtype=dtype)
            gate, up = gate_up.chunk(2, dim=-1)
            h = functional.silu(gate) * up
            h.backward(dh)
            got = run_program("swiglu", {"gate_up": gate_up, "dh": dh}, dtype=dtype)
            self.expect(got, {"h": h, "dgate_up": gate_up.grad}, dtype)

        self.for_dtypes(check)

    def test_gelu_mlp(self):
        up, down = torch.nn.Linear(40, 100), torch.nn.Linear(100, 40)
        x, dy = leaf(17, 40, scale=2), leaf(17, 40)
        y = down(functional.gelu(up(x)))
        y.backward(dy)
        parameters = {"up.weight": up.weight, "up.bias": up.bias}
        parameters.update({"down.weight": down.weight, "down.bias": down.bias})
        got = run_program("gelu_mlp", {"x": x, "dy": dy, **parameters})
        want = {"d " + name: parameter.grad for name, parameter in parameters.items()}
        self.expect(got, {"y": y, "dx": x.grad, **want})

    def test_embedding(self):
        def check(dtype):
            table, positions = leaf(11, 24), leaf(5, 24)
            tokens = torch.randint(11, (3, 5))
            dy = leaf(3, 5, 24, dtype=dtype)
            y = functional.embedding(tokens, table) + positions
            y.backward(dy)
            arrays = {"table": table, "positions": positions, "tokens": tokens, "dy": dy}
            arrays["tokens"] = tokens.flatten()
            got = run_program("embedding", arrays, dtype=dtype)
            want = {"y": y, "dtable": table.grad, "dpositions": positions.grad}
            self.expect(got, want, dtype)

        self.for_dtypes(check)

    def test_cross_entropy(self):
        def check(dtype):
            logits = leaf(13, 301, dtype=dtype, scale=4)
            targets = torch.randint(301, (13,))
            loss = functional.cross_entropy(logits, targets)
            loss.backward()
            got = run_program("cross_entropy", {"logits": logits, "targets": targets}, dtype=dtype)
            self.expect(got, {"loss": loss, "dlogits": logits.grad}, dtype)

        self.for_dtypes(check)

    def check_optimizer(self, op, kind, program_options, torch_options):
        steps, rows, cols = 7, 3, 50
        value, gradients = leaf(rows, cols), torch.randn(steps, rows, cols)
        got = run_program(op, {"value": value, "gradients": gradients}, **program_options)
        optimizer = kind([value], **torch_options)
        values = []
        for gradient in gradients:
            value.grad = gradient.clone()
            optimizer.step()
            values.append(value.detach().clone())
        self.expect(got, {"values": torch.cat(values)})

    def test_adamw(self):
        shared = {"eps": 1e-8, "weight_decay": 0.1}
        self.check_optimizer(
            "adamw",
            torch.optim.AdamW,
            {"learning_rate": 0.02, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8}
            | {"weight_decay": 0.1},
            {"lr": 0.02, "betas": (0.9, 0.95), **shared},
        )

    def test_sgd(self):
        for momentum, nesterov in ((0.0, False), (0.9, False), (0.9, True)):
            with self.subTest(momentum=momentum, nesterov=nesterov):
                shared = {"momentum": momentum, "weight_decay": 0.05, "nesterov": nesterov}
                self.check_optimizer(
                    "sgd",
                    torch.optim.SGD,
                    {"learning_rate": 0.1, **shared, "nesterov": int(nesterov)},
                    {"lr": 0.1, **shared},
                )

    def test_decoder(self):
        vocabulary, width, hidden, layers, heads, length = 50, 48, 80, 2, 4, 70
        model = decoder.Decoder(vocabulary, width, hidden, layers, heads, length)
        tokens = torch.randint(vocabulary, (2, length))
        targets = torch.randint(vocabulary, (2, length))
        parameters = {}
        for name, parameter in model.named_parameters():
            # Values at which no layer is nearly linear.
            torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.3)
            own = name.replace(".gain", "") if "norm" in name else name
            parameters["embedding" if own == "embedding.weight" else own] = parameter
        logits = model(tokens)
        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        arrays = {"tokens": tokens.flatten(), "targets": targets.flatten(), **parameters}
        sizes = {"vocabulary": vocabulary, "width": width, "hidden": hidden, "layers": layers}
        got = run_program("decoder", arrays, heads=heads, length=length, **sizes)
        want = {"d " + name: parameter.grad for name, parameter in parameters.items()}
        self.expect(got, {"logits": logits, "loss": loss, **want})

    def test_stack(self):
        vocabulary, width, hidden, layers, heads, length = 40, 48, 96, 2, 3, 20
        blocks = [
            torch.nn.TransformerEncoderLayer(
                width, heads, hidden, dropout=0.0, activation="gelu", batch_first=True
            )
            for _ in range(layers)
        ]
        norm, head = torch.nn.LayerNorm(width), torch.nn.Linear(width, vocabulary, bias=False)
        table, positions = leaf(vocabulary, width), leaf(length, width)
        parameters = {"tokens": table, "positions": positions, "head.weight": head.weight}
        parameters.update({"final_norm.gain": norm.weight, "final_norm.bias": norm.bias})
        for i, block in enumerate(blocks):
            torch.nn.init.normal_(block.self_attn.in_proj_bias, std=0.3)
            torch.nn.init.normal_(block.self_attn.out_proj.bias, std=0.3)
            of = {
                "qkv.weight": block.self_attn.in_proj_weight,
                "qkv.bias": block.self_attn.in_proj_bias,
                "out.weight": block.self_attn.out_proj.weight,
                "out.bias": block.self_attn.out_proj.bias,
                "up.weight": block.linear1.weight,
                "up.bias": block.linear1.bias,
                "down.weight": block.linear2.weight,
                "down.bias": block.linear2.bias,
                "norm1.gain": block.norm1.weight,
                "norm1.bias": block.norm1.bias,
                "norm2.gain": block.norm2.weight,
                "norm2.bias": block.norm2.bias,
            }
            parameters.update({f"blocks.{i}.{name}": parameter for name, parameter in of.items()})
        indices = torch.randint(vocabulary, (3, length))
        targets = torch.randint(vocabulary, (3, length))
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = functional.embedding(indices, table) + positions
        for block in blocks:
            x = block(x, src_mask=mask)
        loss = functional.cross_entropy(head(norm(x)).flatten(0, 1), targets.flatten())
        loss.backward()
        arrays = {"indices": indices.flatten(), "targets": targets.flatten(), **parameters}
        sizes = {"vocabulary": vocabulary, "width": width, "hidden": hidden, "layers": layers}
        got = run_program("stack", arrays, heads=heads, length=length, **sizes)
        want = {"d " + name: parameter.grad for name, parameter in parameters.items()}
        self.expect(got, {"loss": loss, **want})

    def test_the_program_says_what_it_was_not_given(self):
        with self.assertRaisesRegex(RuntimeError, "array dh: it is missing"):
            run_program("swiglu", {"gate_up": leaf(2, 4)})
        with self.assertRaisesRegex(RuntimeError, "op nothing: there is none of this name"):
            run_program("nothing", {})


if __name__ == "__main__":
    unittest.main()
