# SPDX-License-Identifier: Apache-2.0
"""The Python wheel: its tag, its files, and that it works after unpacking."""

import glob
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

from support import DIGITS, PACKAGE, ROOT, builds_dispatch, require_torch, run_program, run_python

import switchback

MISSING = [
    name for name in ("pip", "setuptools", "wheel") if importlib.util.find_spec(name) is None
]


LIBRARY = os.path.realpath(switchback.library_path())


def write(path, text=""):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def steps_to_install(home, wheel):
    """Commands that install a wheel into an empty environment, and the environment variables of programs
    that run there.

    The environment has NumPy and torch of this interpreter. If these are in a virtual environment,
    PYTHONPATH names their folder.
    """
    python = os.path.join(home, "bin", "python")
    nothing = {"PYTHONPATH": "", "SWITCHBACK_LIBRARY": ""}
    pip = (python, "-m", "pip", "install", "-q")
    if sys.prefix != sys.base_prefix:
        import numpy

        nothing["PYTHONPATH"] = os.path.dirname(os.path.dirname(numpy.__file__))
        pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q")
    return (
        (sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", home),
        (*pip, "--no-deps", "--no-index", wheel),
    ), nothing


@unittest.skipIf(MISSING, f"a wheel cannot be built without {MISSING}")
class Wheel(unittest.TestCase):
    def build(self, folder, **variables):
        source = os.path.join(folder, "source", "python")
        left = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
        shutil.copytree(PACKAGE, source, dirs_exist_ok=True, ignore=left)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SWITCHBACK_")}
        environment.pop("PYTHONPATH", None)
        environment.update(variables)
        pip = sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"
        return subprocess.run(
            [*pip, "-w", folder, source],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def contents(self, folder):
        """The path of the wheel in a folder, and the names of its files."""
        (path,) = glob.glob(os.path.join(folder, "*.whl"))
        with zipfile.ZipFile(path) as packed:
            return path, packed.namelist()

    def test_a_wheel_with_a_library(self):
        with tempfile.TemporaryDirectory() as folder:
            # Creates an installation: the library, another library that it needs, and tuned configurations.
            prefix = os.path.join(folder, "prefix")
            libraries = os.path.join(prefix, "lib")
            configs = os.path.join(prefix, "share", "switchback", "configs")
            for made in (libraries, configs):
                os.makedirs(made)
            shutil.copy(LIBRARY, os.path.join(libraries, "libswitchback.so"))
            write(os.path.join(libraries, "libneeded.so.1"))
            write(os.path.join(configs, "one.jsonl"))
            done = self.build(folder, SWITCHBACK_PREFIX=prefix, SWITCHBACK_BUNDLE="libneeded.so.1")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            path, names = self.contents(folder)
            self.assertRegex(path, r"/switchback-[0-9.]+-py3-none-linux_\w+\.whl$")
            shutil.unpack_archive(path, os.path.join(folder, "unpacked"), "zip")
            for name in (
                "lib/libswitchback.so",
                "lib/libneeded.so.1",
                "share/switchback/configs/one.jsonl",
                "nn/linear.py",
                "ops.py",
            ):
                self.assertIn("switchback/" + name, names)
            self.assertFalse([name for name in names if re.search("tests|examples|setup", name)])
            environment = {"PYTHONPATH": os.path.join(folder, "unpacked"), "SWITCHBACK_LIBRARY": ""}
            script = (
                "import switchback, numpy; print(switchback.library_path()); "
                "switchback.quantize_rowwise(numpy.ones((2, 3), 'f4'))"
            )
            done = run_python("-c", script, env=environment, cwd=folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(os.path.join("unpacked", "switchback", "lib"), done.stdout)

    def test_an_empty_environment_trains_with_it(self):
        require_torch()
        with tempfile.TemporaryDirectory() as folder:
            # Creates a library alone in its folder, and a checkout that has tuned configurations.
            library = os.path.join(folder, "alone", "libswitchback.so")
            os.mkdir(os.path.dirname(library))
            shutil.copy(LIBRARY, library)
            configs = os.path.join(folder, "source", "data", "configs")
            os.makedirs(configs)
            write(os.path.join(configs, "list.jsonl"))
            done = self.build(folder, SWITCHBACK_LIBRARY=library)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            wheel, names = self.contents(folder)
            self.assertIn("switchback/share/switchback/configs/list.jsonl", names)
            # An environment that is empty except for the system's torch, NumPy and pip.
            home = os.path.join(folder, "environment")
            steps, nothing = steps_to_install(home, wheel)
            python = os.path.join(home, "bin", "python")
            example = os.path.join(PACKAGE, "examples", "digits.py"), "--data", DIGITS
            short = "--epochs", "5", "--seeds", "1", "--tolerance", "5"
            steps += (python, *example, *short), (python, "-m", "switchback")
            for step in steps:
                done = run_program(*step, env=nothing, cwd=folder)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn(home, done.stdout)  # the library in this environment

    def test_a_library_built_by_cmake(self):
        # A program that replaces cmake: it records its arguments and installs the library under test.
        with tempfile.TemporaryDirectory() as folder:
            programs, notes = os.path.join(folder, "bin"), os.path.join(folder, "notes")
            os.mkdir(programs)
            path = os.path.join(programs, "cmake")
            write(
                path,
                f'#!/bin/sh\necho "$@" >> {notes}\n'
                '[ "$1" = --install ] || exit 0\n'
                'mkdir -p "$4/lib/x86_64-linux-gnu" "$4/share/switchback/configs"\n'
                f'cp {LIBRARY} "$4/lib/x86_64-linux-gnu/libswitchback.so.9.9"\n'
                'echo > "$4/share/switchback/configs/two.jsonl"\n',
            )
            os.chmod(path, 0o755)
            os.mkdir(os.path.join(folder, "source"))
            write(os.path.join(folder, "source", "CMakeLists.txt"))
            search = programs + os.pathsep + os.environ["PATH"]
            done = self.build(folder, PATH=search, SWITCHBACK_CMAKE_ARGS="-DONE=1 '-DTWO=a b'")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(notes, encoding="utf-8") as file:
                configure, build, install = file.read().splitlines()
            options = "-DSWITCHBACK_TESTS=OFF -DSWITCHBACK_BENCH=OFF -DONE=1 -DTWO=a b"
            self.assertIn(options, configure)
            self.assertTrue(build.startswith("--build") and install.startswith("--install"))
            self.assertTrue(install.endswith(" --strip"))
            _, names = self.contents(folder)
            self.assertIn("switchback/lib/libswitchback.so", names)
            self.assertIn("switchback/share/switchback/configs/two.jsonl", names)

    def test_nothing_to_pack(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.build(folder, SWITCHBACK_LIBRARY=os.path.join(folder, "none.so"))
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("none.so: there is no such file", done.stdout + done.stderr)
        with tempfile.TemporaryDirectory() as folder:
            done = self.build(folder)  # a copy of python/ without the C++ sources
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("no C++ sources", done.stdout + done.stderr)


TOOL = os.path.join(ROOT, "tools", "wheel")
LACKING = MISSING + [
    name
    for name, there in (
        ("tools/wheel, which only a checkout has", os.path.exists(TOOL)),
        ("auditwheel", importlib.util.find_spec("auditwheel")),
        *((name, shutil.which(name)) for name in ("patchelf", "strip", "ldd", "cmake")),
    )
    if not there
]

# A program that runs the example of README.md, and prints which files the process has mapped.
README_AND_MAPS = """
import re
text = open({readme!r}, encoding="utf-8").read()
exec(re.search("```python\\n(.*?)```", text, re.S)[1])
assert loss.isfinite() and model[2].weight.grad is not None
files = {{line.split()[-1] for line in open("/proc/self/maps") if "/" in line}}
print("\\n".join(sorted(file for file in files if ".so" in file)))
"""


@unittest.skipIf(LACKING, f"portable wheels cannot be built without {LACKING}")
class Portable(unittest.TestCase):
    """The wheel that tools/wheel builds works in an environment without anything else of switchback."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        arguments = "--library", LIBRARY, "--out", cls.folder.name
        done = run_python(TOOL, *arguments, env={"PYTHONPATH": ""})
        assert done.returncode == 0, done.stdout + done.stderr
        cls.said = done.stdout

    def test_the_wheel(self):
        (wheel,) = glob.glob(os.path.join(self.folder.name, "*.whl"))
        self.assertRegex(os.path.basename(wheel), r"-py3-none-manylinux_\d+_\d+_\w+\.whl$")
        self.assertRegex(self.said, r"\.whl \d+\.\d MB")
        home = os.path.join(self.folder.name, "environment")
        python = os.path.join(home, "bin", "python")
        steps, nothing = steps_to_install(home, wheel)
        for step in steps:
            done = run_program(*step, env=nothing, cwd=self.folder.name)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        require_torch()
        script = README_AND_MAPS.format(readme=os.path.join(PACKAGE, "README.md"))
        done = run_program(python, "-c", script, env=nothing, cwd=self.folder.name)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        way = "import switchback.nn; print(switchback.nn.dispatch_path())"
        said = run_program(python, "-c", way, env=nothing, cwd=self.folder.name).stdout
        if builds_dispatch():
            self.assertEqual(said.strip(), "compiled")
        else:
            self.assertRegex(said, "^ctypes")
        loaded = done.stdout.split()
        (ours,) = [file for file in loaded if os.path.basename(file) == "libswitchback.so"]
        self.assertTrue(ours.startswith(home), ours)
        openmp = [file for file in loaded if os.path.basename(file).startswith("libgomp")]
        self.assertEqual(len(openmp), 1, openmp)
        lib = os.path.dirname(ours)
        for file in loaded:
            if re.search("libdnnl|libhwy", file):
                self.assertEqual(os.path.dirname(file), lib)

    def test_the_source_distribution(self):
        (sdist,) = glob.glob(os.path.join(self.folder.name, "*.tar.gz"))
        shutil.unpack_archive(sdist, self.folder.name)
        (source,) = glob.glob(os.path.join(self.folder.name, "switchback-*[0-9]", "cpp"))
        # cmake's configuration fails if the source distribution lacks a source that the build needs.
        build = os.path.join(self.folder.name, "build")
        off = (f"-DSWITCHBACK_{part}=OFF" for part in ("TESTS", "BENCH", "CUDA"))
        done = run_program("cmake", "-S", source, "-B", build, *off)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
