# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel: the Python files, libswitchback, and the tuned configurations that it reads.

The library is the first of these:
  $SWITCHBACK_LIBRARY   a file: a libswitchback.so that was built or installed;
  $SWITCHBACK_PREFIX    a folder: the prefix that it was installed to;
  built with CMake from the sources around this folder ($SWITCHBACK_CMAKE_ARGS: more arguments).
The configurations are those next to the library (share/switchback/configs), else this checkout's.
$SWITCHBACK_BUNDLE names files next to the library to pack with it: libraries that it needs and that
the target machines lack, "libdnnl.so.2 libhwy.so.1". An installed library looks there first.

Where a C++ compiler ($CXX, else c++) and Python's headers are found, the compiled dispatch is built
too: _torch_dispatch, one module for all Pythons from 3.10 and torch from 2.10 on. It needs no torch to
be built. $SWITCHBACK_BUILD_DISPATCH = 0 leaves it out, 1 fails where it cannot be built.
`python3 setup.py build_dispatch` builds it alone, into switchback/ or the folder that --into names.
"""

import glob
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile

from setuptools import Command, setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent
# The sources of the C++ library. In a source distribution they are next to this file.
SOURCES = HERE / "cpp" if (HERE / "cpp").is_dir() else HERE.parent
CONFIGS = pathlib.Path("share", "switchback", "configs")
HELPER = "switchback-validate"


def from_file(path):
    """The library file that the user named in $SWITCHBACK_LIBRARY."""
    library = pathlib.Path(path)
    if not library.is_file():
        raise SystemExit(f"SWITCHBACK_LIBRARY = {path}: there is no such file")
    return library.resolve()


def from_prefix(prefix):
    """The library file of an installation, whose prefix is $SWITCHBACK_PREFIX."""
    for folder in ("lib", "lib64", os.path.join("lib", "*-linux-gnu")):
        found = sorted(glob.glob(os.path.join(prefix, folder, "libswitchback.so*")))
        if found:
            return from_file(found[0])
    raise SystemExit(
        f"SWITCHBACK_PREFIX = {prefix}: there is no libswitchback.so in its lib folders"
    )


def from_sources(stage):
    """Builds the library with CMake and installs it to `stage`; returns its file."""
    if not (SOURCES / "CMakeLists.txt").is_file():
        raise SystemExit(
            f"There are no C++ sources in {SOURCES} to build libswitchback from; set SWITCHBACK_LIBRARY to "
            "the file of one, or install from a checkout of the repository"
        )
    if shutil.which("cmake") is None:
        raise SystemExit(
            "cmake is needed to build libswitchback and was not found; install it, or set SWITCHBACK_LIBRARY "
            "to the file of a libswitchback.so"
        )
    build = HERE / "build" / "cmake"
    more = shlex.split(os.environ.get("SWITCHBACK_CMAKE_ARGS", ""))
    steps = (
        (
            "-S",
            SOURCES,
            "-B",
            build,
            "-DCMAKE_BUILD_TYPE=Release",
            "-DSWITCHBACK_TESTS=OFF",
            "-DSWITCHBACK_BENCH=OFF",
            *more,
        ),
        ("--build", build, "--parallel", os.cpu_count() or 1),
        ("--install", build, "--prefix", stage, "--strip"),
    )
    for arguments in steps:
        command = ["cmake", *map(str, arguments)]
        print("libswitchback:", shlex.join(command), flush=True)
        if subprocess.run(command, check=False).returncode != 0:
            raise SystemExit(
                f"libswitchback could not be built; this failed: {shlex.join(command)}"
            )
    return from_prefix(stage)


def find_library(stage):
    for variable, find in (("SWITCHBACK_LIBRARY", from_file), ("SWITCHBACK_PREFIX", from_prefix)):
        value = os.environ.get(variable)
        if value:
            return find(value)
    return from_sources(stage)


class CannotBuild(Exception):
    """Says why the compiled dispatch cannot be built here."""


def build_dispatch(folder):
    """Compiles csrc/ into the compiled dispatch; returns the file."""
    source, include = HERE / "csrc" / "torch_dispatch.cpp", SOURCES / "include"
    if not (include / "switchback" / "switchback.h").is_file():
        raise CannotBuild(f"there is no switchback/switchback.h in {include}")
    if sys.version_info < (3, 10) or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise CannotBuild("this Python lacks the limited API of 3.10")
    headers = pathlib.Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        raise CannotBuild(f"there is no Python.h in {headers}")
    made = pathlib.Path(folder) / "_torch_dispatch.abi3.so"
    command = shlex.split(os.environ.get("CXX", "c++"))
    command += ["-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra"]
    command += ["-isystem", headers, "-I", include, source, "-ldl", "-o", made]
    command = [str(word) for word in command]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CannotBuild(str(error)) from None
    if done.returncode != 0:
        raise CannotBuild(f"{shlex.join(command)} failed:\n{done.stderr}")
    if done.stderr:
        print(done.stderr, file=sys.stderr)
    return made


class BuildDispatch(Command):
    """The command `setup.py build_dispatch [--into FOLDER]`."""

    description = "build the compiled dispatch for torch"
    user_options = [("into=", None, "folder (default: switchback/)")]

    def initialize_options(self):
        self.into = None

    def finalize_options(self):
        self.into = self.into or str(HERE / "switchback")

    def run(self):
        try:
            print(build_dispatch(self.into))
        except CannotBuild as error:
            raise SystemExit(f"build_dispatch: {error}") from None


class BuildWithLibrary(build_py):
    """Puts the library into lib/ of the package, and its tuned configurations where it looks for them."""

    def run(self):
        super().run()
        if getattr(self, "editable_mode", False):
            print("An editable install carries no library: set SWITCHBACK_LIBRARY when you use it.")
            return
        package = pathlib.Path(self.build_lib) / "switchback"
        with tempfile.TemporaryDirectory() as stage:
            library = find_library(stage)
            for old in ("lib", "share"):  # left by an earlier build
                shutil.rmtree(package / old, ignore_errors=True)
            (package / "lib").mkdir()
            shutil.copy2(library, package / "lib" / "libswitchback.so")
            self.add_helper(library, package)
            for name in os.environ.get("SWITCHBACK_BUNDLE", "").split():
                if not (library.parent / name).is_file():
                    raise SystemExit(f"SWITCHBACK_BUNDLE: {name} does not lie beside {library}")
                shutil.copy2(library.parent / name, package / "lib" / name)
            for folder in (
                library.parent.parent / CONFIGS,  # of lib/
                library.parent.parent.parent / CONFIGS,  # next to lib/<machine>/
                SOURCES / "data" / "configs",  # a build tree may have none
            ):
                if folder.is_dir():
                    shutil.copytree(folder, package / CONFIGS, dirs_exist_ok=True)
                    print(f"libswitchback: packed the tuned configurations in {folder}")
                    break
            else:
                print(f"libswitchback: there are no tuned configurations beside {library} to pack")
        print(f"libswitchback: packed {library}")
        self.add_dispatch(package)

    @staticmethod
    def add_helper(library, package):
        """Packs the tuner's helper program, which is next to an installed library, or in bin/ of a build."""
        for file in (
            library.parent / "switchback" / HELPER,
            library.parent.parent / "bin" / HELPER,
        ):
            if file.is_file():
                (package / "lib" / "switchback").mkdir()
                shutil.copy2(file, package / "lib" / "switchback" / HELPER)
                print(f"libswitchback: packed {file}")
                return
        print(f"libswitchback: there is no {HELPER} beside {library} to pack")

    def add_dispatch(self, package):
        wish = os.environ.get("SWITCHBACK_BUILD_DISPATCH", "")
        (package / "_torch_dispatch.abi3.so").unlink(missing_ok=True)  # left by an earlier build
        if wish == "0":
            return
        try:
            build_dispatch(package)
            print("compiled dispatch: packed")
        except CannotBuild as error:
            if wish:
                raise SystemExit(
                    f"SWITCHBACK_BUILD_DISPATCH = {wish}, but the compiled dispatch cannot be built: {error}"
                ) from None
            print(f"compiled dispatch: left out: {error}")


class PlatformWheel(bdist_wheel):
    """A wheel for one platform, because of the library, and for every Python 3: it needs no extension module.
    """

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return True


setup(
    name="switchback",
    version=re.search(r'__version__ = "(.+)"', (HERE / "switchback" / "_version.py").read_text())[
        1
    ],
    description="int8 linear layers that train and infer: SwitchBack for PyTorch and NumPy",
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    author="The switchback authors",
    license="Apache-2.0",
    python_requires=">=3.9",
    install_requires=["numpy"],
    extras_require={"torch": ["torch>=1.13"], "comfy": ["torch>=2.4", "comfy-kitchen>=0.2.40"]},
    packages=["switchback", "switchback.interop", "switchback.nn"],
    cmdclass={
        "build_dispatch": BuildDispatch,
        "build_py": BuildWithLibrary,
        "bdist_wheel": PlatformWheel,
    },
    distclass=WithLibrary,
)
