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
                self.assertIn("the same loss", done.stdout)
                # Starts from the checkpoint that the first run wrote. One step does not halve the loss, so
                # the example exits with 1.
                base = os.path.join(folder, "base_int8_convrot.safetensors")
                done = run_python(script, *common, "--checkpoint", base, "--steps", "1")
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertNotIn("float32", done.stdout)

    def test_readme(self):
        pages = [
            os.path.join(ROOT, "README.md"),
            os.path.join(ROOT, "docs", "pytorch.md"),
            os.path.join(ROOT, "docs", "migrating.md"),
            os.path.join(PACKAGE, "README.md"),
        ]
        if importlib.util.find_spec("comfy_kitchen"):
            pages.append(os.path.join(ROOT, "docs", "comfyui.md"))
        for name in pages:
            with open(name, encoding="utf-8") as file:
                programs = re.findall(r"^```python\n(import .*?)^```$", file.read(), re.M | re.S)
            self.assertTrue(programs, name)
            for program in programs:
                done = run_python("-c", program)
                self.assertEqual(done.returncode, 0, program + done.stderr)

    def test_benchmarks(self):
        """Each benchmark runs with small sizes and prints its rows."""
        calls = ("in eval", "recorded", "and backward", "forward, prepared", "and dX")
        of_host = [words + r".* \d+\.\d\d \+- *\d+\.\d\d" for words in calls]
        cases = [
            ("host_time.py", "--samples 3 --calls 2", of_host),
            ("weight.py", "--rounds 2 --seconds 0.001 --shape 2,32,48", ["fingerprint"]),
            ("peers.py", "--rounds 2 --min-time 0 --shape 2,64,48", [r"2,64,48 .* us .* bfloat16 "]),
        ]
        if importlib.util.find_spec("transformers"):
            bert = "--layers 1 --batch 1 --length 8 --min-time 0 --models bert --rivals rowwise prepared"
            kinds = ("inference rowwise", "inference prepared", "training  rowwise")
            cases.append(("models.py", bert, [rf"bert +{kind} .*x .*error 0\.0" for kind in kinds]))
        if importlib.util.find_spec("comfy_kitchen"):
            small = "--rows 3 --rounds 3"
            words = ["convrot", "plain", "eager", "bf16", "fingerprint"]
            cases.append(("comfy_kitchen.py", f"{small} --layers 256,64 --what", words))
            cases.append(("comfy_kitchen.py", f"{small} --block 256", ["block of"]))
        for script, arguments, printed in cases:
            with self.subTest(script, arguments=arguments):
                done = run_python(os.path.join(PACKAGE, "benchmarks", script), *arguments.split())
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                for row in printed:
                    self.assertRegex(done.stdout, row)
                self.assertNotIn("ITSELF WRONG", done.stdout)

    def test_decoder(self):
        script = os.path.join(PACKAGE, "benchmarks", "decoder.py")
        sizes = "--width 64 --hidden 128 --heads 4 --layers 1 --context 32 --vocabulary 64 --batch 4"
        small = (*sizes.split(), "--rounds", "2", "--steps", "2", "--warmup", "1", "--rate", "0.01")
        for arguments, names in (
            (
                "--mode rowwise --dw floating int8_block --rotation 0 64",
                ("nn.Linear", "rowwise floating", "rowwise int8_block rotation 64"),
            ),
            ("--lora 4 --rotation 64 --dtype bfloat16", ("rowwise rotation 64",)),
        ):
            done = run_python(script, *small, *arguments.split())
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            losses = []
            for name in names:
                found = re.search(rf"^{re.escape(name)} .* MiB +(\S+) to (\S+)$", done.stdout, re.M)
                self.assertIsNotNone(found, done.stdout)
                losses.append(tuple(map(float, found.groups())))
            for first, last in losses:
                # All models have the same weights and tokens, so they begin with nearly the same loss.
                self.assertAlmostEqual(first, losses[0][0], delta=0.02)
                self.assertLess(last, first)  # it learns


if __name__ == "__main__":
    unittest.main()
