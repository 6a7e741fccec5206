# SPDX-License-Identifier: Apache-2.0
"""`python -m switchback` prints the installed versions and the devices, for bug reports."""

from __future__ import annotations

import importlib
import os
import sys

import switchback
from switchback._context import context_for


def dispatch_path() -> str:
    try:
        return importlib.import_module("switchback.nn").dispatch_path()
    except (ImportError, ValueError) as error:
        return str(error)


def reason(context, threads: int) -> str:
    """A text that says why a context has fewer threads than this process may use; empty if it does not."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads >= cores or context.device != "cpu":
        return ""
    if context.torch_threads is not None:
        return (
            f" of {cores}: torch.get_num_threads() is {context.torch_threads}, and the package follows it "
            "until switchback.set_num_threads sets another number"
        )
    return f" of {cores}, as the CPU quota of the container allows"


def main() -> int:
    try:
        major, minor = switchback.abi_version()
    except switchback.LibraryError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"package      {switchback.__version__}")
    print(f"library      {switchback.library_version()}, ABI {major}.{minor}")
    print(f"             {switchback.library_path()}")
    devices = ["cpu"]
    for name in ("numpy", "torch"):
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            missing = isinstance(error, ModuleNotFoundError) and error.name == name
            print(f"{name:13}{'not installed' if missing else error}")
            continue
        print(f"{name:13}{module.__version__}")
        if name == "torch":
            print(f"{'dispatch':13}{dispatch_path()}")
        if name == "torch" and module.cuda.is_available():
            devices += [f"cuda:{index}" for index in range(module.cuda.device_count())]
    for device in devices:
        try:
            context = context_for(device)
            threads = context.threads()
            print(f"{device:13}{context.isa()}, {threads} CPU thread(s){reason(context, threads)}")
        except switchback.Error as error:
            print(f"{device:13}{error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
