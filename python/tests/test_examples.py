# SPDX-License-Identifier: Apache-2.0
"""The examples and the benchmark run, and print their results."""

import importlib.util
import os
import re
import tempfile
import unittest

from support import DIGITS, PACKAGE, ROOT, require_torch, run_python, torch_at_least

require_torch()


class Examples(unittest.TestCase):
    @unittest.skipUnless(os.path.exists(DIGITS), "the digits are not there")
    def test_digits(self):
        script = os.path.join(PACKAGE, "examples", "digits.py")
        done = run_python(script, "--data", DIGITS)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("SwitchBackLinear - nn.Linear", done.stdout)
        # With a tolerance of -1 the example's check must fail: this shows that it can.
        done = run_python(
            script, "--data", DIGITS, "--epochs", "1", "--seeds", "1", "--tolerance", "-1"
        )
        self.assertEqual(done.returncode, 1)

    @unittest.skipUnless(os.path.exists(DIGITS), "the digits are not there")
    def test_lora_convrot(self):
        families = ["small"]
        if importlib.util.find_spec("diffusers") and torch_at_least(2, 0):
            families.append("diffusers")
        script = os.path.join(PACKAGE, "examples", "lora_convrot.py")
        for family in families:
            with self.subTest(family=family), tempfile.TemporaryDirectory() as folder:
                common = ("--data", DIGITS, "--out", folder, "--family", family)
                done = run_python(script, *common)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                layers, rotated = re.search(r"(\d+) layers, (\d+) of them rotated", done.stdout).groups()
                self.assertEqual(layers, rotated)
                self.assertGreaterEqual(int(layers), 14)
                self.assertIn("the same loss", done.stdout)
                # Starts from the checkpoint that the first run wrote. One step does not halve the loss, so
                # the example exits with 1.
                base = os.path.join(folder, "base_int8_convrot.safetensors")
                done = run_python(script, *common, "--checkpoint", base, "--steps", "1")
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertNotIn("float32", done.stdout)

    def test_readme(self):
        for name in (
            os.path.join(ROOT, "README.md"),
            os.path.join(ROOT, "docs", "pytorch.md"),
            os.path.join(ROOT, "docs", "migrating.md"),
            os.path.join(PACKAGE, "README.md"),
        ):
            with open(name, encoding="utf-8") as file:
                programs = re.findall(r"^```python\n(import .*?)^```$", file.read(), re.M | re.S)
            self.assertTrue(programs, name)
            for program in programs:
                done = run_python("-c", program)
                self.assertEqual(done.returncode, 0, program + done.stderr)

    def test_host_time(self):
        done = run_python(
            os.path.join(PACKAGE, "benchmarks", "host_time.py"), "--samples", "3", "--calls", "2"
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for words in ("in eval", "recorded", "and backward", "forward, prepared", "and dX"):
            self.assertRegex(done.stdout, words + r".* \d+\.\d\d \+- *\d+\.\d\d")

    @unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers are not installed")
    def test_models(self):
        small = ("--layers", "1", "--batch", "1", "--length", "8", "--min-time", "0")
        done = run_python(
            os.path.join(PACKAGE, "benchmarks", "models.py"),
            *small,
            *("--models", "bert", "--rivals", "rowwise", "prepared"),
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for words in ("inference rowwise", "inference prepared", "training  rowwise"):
            self.assertRegex(done.stdout, rf"bert +{words} .*x .*error 0\.0")

    def test_decoder(self):
        script = os.path.join(PACKAGE, "benchmarks", "decoder.py")
        sizes = "--width 64 --hidden 128 --heads 4 --layers 1 --context 32 --vocabulary 64 --batch 4"
        small = (*sizes.split(), "--rounds", "2", "--steps", "2", "--warmup", "1", "--rate", "0.01")
        number = r"(\d+\.\d+)"
        line = rf" +{number} \+- +{number} +\d+ +{number} \({number} to {number}\) +{number} MiB +{number} to {number}"
        forms = "--mode rowwise --dw floating int8_block --rotation 0 64".split()
        done = run_python(script, *small, *forms)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = {}
        for name in ("nn.Linear", "rowwise floating", "rowwise int8_block rotation 64"):
            found = re.search(rf"^{re.escape(name)}{line}$", done.stdout, re.M)
            self.assertIsNotNone(found, done.stdout)
            first, last = map(float, found.groups()[-2:])
            self.assertLess(last, first)  # it learns
            rows[name] = first
        # All models have the same weights and tokens, so they begin with nearly the same loss.
        for first in rows.values():
            self.assertAlmostEqual(first, rows["nn.Linear"], delta=0.02)
        self.assertEqual(len(re.findall(" MiB ", done.stdout)), 5)
        done = run_python(script, *small, "--lora", "4", "--rotation", "64", "--dtype", "bfloat16")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, rf"rowwise rotation 64{line}")

    def test_weight(self):
        small = ("--rounds", "2", "--seconds", "0.001", "--shape", "2,32,48")
        done = run_python(os.path.join(PACKAGE, "benchmarks", "weight.py"), *small)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("fingerprint", done.stdout)

    def test_peers(self):
        small = ("--rounds", "2", "--min-time", "0", "--shape", "2,64,48")
        done = run_python(os.path.join(PACKAGE, "benchmarks", "peers.py"), *small)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"2,64,48 .* us .* bfloat16 ")
        self.assertNotIn("ITSELF WRONG", done.stdout)


if __name__ == "__main__":
    unittest.main()
