# SPDX-License-Identifier: Apache-2.0
"""int8 weights in safetensors files: C++ and Python read and write the same ones, to the bit."""

import json
import os
import subprocess
import tempfile
import unittest

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest(f"torch is not installed: {error}") from error

from switchback.interop import checkpoints, files

PROGRAM = os.environ["SWITCHBACK_SAFETENSORS_COPY"]
PREFIX = "model.diffusion_model."


def codes(rows, columns):
    return torch.randint(-128, 128, (rows, columns), dtype=torch.int8)


def scales(*shape):
    return torch.rand(shape) + 2.0**-20


def comfy_quant(**said):
    return torch.tensor(list(json.dumps(said).encode()), dtype=torch.uint8)


def of_comfy():
    """Weights as ComfyUI's files have them, with scales of every form and type."""
    state = {}
    for name, rows, columns, scale, said in (
        ("rows", 33, 256, scales(33, 1), {"convrot": True}),
        ("short", 5, 64, scales(5), {"params": {"convrot": True, "convrot_groupsize": 64}}),
        ("whole", 7, 9, scales(), {}),
        ("half", 3, 16, scales(3, 1).half(), {"convrot": True, "convrot_groupsize": 16}),
        ("brain", 3, 5, scales(3, 1).bfloat16(), {"convrot": False}),
        ("wide", 3, 5, scales(3, 1).double(), {}),
    ):
        state[f"{name}.weight"] = codes(rows, columns)
        state[f"{name}.weight_scale"] = scale
        state[f"{name}.comfy_quant"] = comfy_quant(format="int8_tensorwise", **said)
        state[f"{name}.bias"] = torch.randn(rows)
    return state


class Copies(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.given, self.made = (os.path.join(folder.name, name) for name in ("given", "made"))

    def copy(self, how, prefix=""):
        done = subprocess.run(
            [PROGRAM, how, self.given, self.made, prefix], capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return files.read(self.made)

    def check_same(self, got, want):
        """Codes, scales and rotations of two state_dicts in the package's own form."""
        for key, tensor in want.items():
            name = key.rpartition(".")[2]
            if name in ("W_int8", "state_W", "bias"):
                self.assertTrue(torch.equal(got[key], tensor), key)
            if name == "W_int8":
                rotation = key.replace("W_int8", "rotation_W")
                self.assertEqual(int(got.get(rotation, 0)), int(want.get(rotation, 0)), key)

    def test_what_python_writes_cpp_reads(self):
        state = of_comfy()
        want = checkpoints.from_int8(state)
        self.assertEqual(sum(key.endswith("W_int8") for key in want), 6)
        for prefix in ("", PREFIX):
            files.write(self.given, {prefix + key: tensor for key, tensor in state.items()})
            self.check_same(self.copy("own", prefix)[0], want)

    def test_own_keys(self):
        state = {
            "up.W_int8": codes(3, 64),
            "up.state_W": scales(3),
            "up.rotation_W": torch.tensor([64], dtype=torch.int32),
            "up.weight": torch.empty(0),
            "down.W_int8": codes(2, 3),
            "down.state_W": scales(1),
        }
        files.write(self.given, state)
        self.check_same(self.copy("own")[0], state)

    def test_bitsandbytes(self):
        state = {
            "a.weight": codes(3, 5),
            "a.SCB": scales(3),
            "a.weight_format": torch.tensor(0, dtype=torch.uint8),
        }
        files.write(self.given, state)
        self.check_same(self.copy("own")[0], checkpoints.from_int8(state))

    def test_what_cpp_writes_python_reads(self):
        state = of_comfy()
        files.write(self.given, state)
        read, metadata = self.copy("comfy")
        # C++ and Python divide the same absmax by 127, so the scales have the same bits.
        want = checkpoints.to_int8(checkpoints.from_int8(state), "comfy")
        for key, tensor in want.items():
            if not key.endswith("comfy_quant"):
                self.assertEqual(read[key].shape, tensor.shape, key)
                self.assertTrue(torch.equal(read[key], tensor), key)
        self.check_same(
            checkpoints.from_int8(read, metadata=metadata), checkpoints.from_int8(want)
        )


if __name__ == "__main__":
    unittest.main()
