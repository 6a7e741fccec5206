# SPDX-License-Identifier: Apache-2.0
"""Tests tools/sass on the output of a stand-in for cuobjdump: its counts, and the input that it refuses.

    sass_test.py REPOSITORY
"""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = sys.argv[1]

USAGE = """
Fatbin elf code:
================
arch = sm_90

Resource usage:
 Common:
  GLOBAL:0
 Function {name}:
  REG:40 STACK:{stack} SHARED:128 LOCAL:0 CONSTANT[0]:600 TEXTURE:0 SURFACE:0 SAMPLER:0
"""

LISTING = """
Fatbin elf code:
================
arch = sm_90

	code for sm_90
	.target	sm_90

		Function : {name}
        /*0000*/                   LDC R1, c[0x0][0x28] ;                     /* 0x00000a00ff017b82 */
                                                                              /* 0x000fe20000000800 */
        /*0010*/                   LDG.E.{bits}CONSTANT R4, desc[UR4][R2.64] ;    /* 0x0000000402047981 */
        /*0020*/              @!P0 LDG.E.{bits}CONSTANT R8, desc[UR4][R2.64+0x10] ;    /* 0x0000000402047981 */
        /*0030*/                   {middle} ;    /* 0x0000000402047981 */
        /*0040*/                   STG.E.64 desc[UR4][R2.64], R4 ;    /* 0x0000000402047981 */
        /*0050*/               @P1 BRA 0x10 ;                                 /* 0x00000a00ff017b82 */
        /*0060*/                   EXIT ;                                     /* 0x00000a00ff017b82 */
        /*0070*/                   BRA 0x70;                                  /* 0x00000a00ff017b82 */
        /*0080*/                   NOP;                                       /* 0x00000a00ff017b82 */
"""

# Demangled: void switchback::quant::cuda::(anonymous namespace)::codes_kernel<switchback::bfloat16, 8>(…::TileArguments)
NAME = ("_ZN10switchback5quant4cuda12_GLOBAL__N_112codes_kernelINS_8bfloat16ELi8EEEv"
        "NS2_13TileArgumentsE")


class Sass(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.object = self.write("some.cu.o", "")

    def write(self, name, text, executable=False):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        if executable:
            os.chmod(path, 0o755)
        return path

    def stand_in(self, bits="128.", middle="FFMA R4, R4, R5, R6", stack=0, name=NAME):
        usage = self.write("usage", USAGE.format(stack=stack, name=name))
        listing = self.write("listing", LISTING.format(bits=bits, middle=middle, name=name))
        return self.write("cuobjdump", f'#!/bin/sh\n[ "$1" = -sass ] && exec cat {listing}\nexec cat {usage}\n', True)

    def sass(self, cuobjdump, rules=None, paths=None, code=0):
        command = [sys.executable, os.path.join(ROOT, "tools/sass"), "--cuobjdump", cuobjdump]
        if rules is not None:
            command += ["--check", self.write("rules", rules)]
        done = subprocess.run(command + (paths or [self.object]), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_counts(self):
        line = self.sass(self.stand_in(), "codes_kernel<bfloat16, 8>  128x2  64x1\n").splitlines()[1]
        self.assertEqual(line.split(), ["sm_90", "40", "0", "0", "128", "7", "5", "128x2", "64x1",
                                        "codes_kernel<bfloat16,", "8>"])

    def test_narrower_loads_and_fewer_stores_are_refused(self):
        said = self.sass(self.stand_in(bits="64."), "codes_kernel<.*>  128x2  64x2\n", code=1)
        self.assertIn("codes_kernel<bfloat16, 8>: 0 global loads of 128 bits, not 2", said)
        self.assertIn("1 global stores of 64 bits, not 2", said)
        self.assertIn("0 global loads of 128", self.sass(self.stand_in(bits=""), "codes_kernel<.*>  128x2  -\n", code=1))

    def test_spills_are_refused_in_any_kernel(self):
        self.assertIn("registers in memory", self.sass(self.stand_in(middle="STL [R1], R4"), code=1))
        self.assertIn("16 bytes of stack", self.sass(self.stand_in(stack=16), code=1))

    def test_exact_numbers(self):
        self.sass(self.stand_in(), "codes_kernel<.*>  128x2  -  LDG=2 registers=40\n")
        said = self.sass(self.stand_in(), "codes_kernel<.*>  -  -  LDG=3 registers=41\n", code=1)
        self.assertIn("LDG is 2, not 3", said)
        self.assertIn("registers is 40, not 41", said)

    def test_missing_kernels_are_refused(self):
        self.assertIn("sm_90: no kernel is named other_kernel",
                      self.sass(self.stand_in(), "other_kernel  128x1  -\n", code=1))
        nothing = self.write("nothing", "#!/bin/sh\n", True)
        self.assertIn("no kernels found", self.sass(nothing, code=1))
        with open(os.path.join(ROOT, "tools/lib/sass_quantize.txt"), encoding="utf-8") as file:
            self.assertIn("no kernel is named rowwise_kernel", self.sass(self.stand_in(), file.read(), code=1))

    def test_bad_input(self):
        self.assertIn("rules:2: 'codes_kernel 128' is not an expression, loads and stores",
                      self.sass(self.stand_in(), "# a comment\ncodes_kernel 128\n", code=2))
        self.assertIn("rules:1:", self.sass(self.stand_in(), "codes_kernel<( 128x1 -\n", code=2))
        self.assertIn("/missing.o: no such file",
                      self.sass(self.stand_in(), paths=[self.folder.name + "/missing.o"], code=2))
        failing = self.write("failing", "#!/bin/sh\necho broken >&2\nexit 3\n", True)
        self.assertIn("exit code 3\nbroken", self.sass(failing, code=2))
        self.assertIn("/nowhere: No such file", self.sass(self.folder.name + "/nowhere", code=2))

    def test_folders(self):
        self.write("other.cubin", "")
        self.assertIn("2 kernels", self.sass(self.stand_in(), paths=[self.folder.name]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
