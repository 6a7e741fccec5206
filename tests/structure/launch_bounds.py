# SPDX-License-Identifier: Apache-2.0
"""Checks that a GPU has the registers and the shared memory for the blocks that the library launches. The emulated device
has logged the launches of tests; what the kernels need is read from the compiled objects. Exit code 77 if there is no
cuobjdump.

    launch_bounds.py REPOSITORY BUILD[,BUILD ...] LOG ...
"""
import importlib.machinery
import importlib.util
import os
import re
import sys

SKIPPED = 77
KIB = 1024
# The most shared memory of a block, in bytes, by compute capability. A kernel has to request more than
# 48 KiB. The 1 KiB that the system keeps is not included.
SHARED_BYTES = {75: 64 * KIB, 80: 163 * KIB, 86: 99 * KIB, 87: 163 * KIB, 89: 99 * KIB, 90: 227 * KIB, 100: 227 * KIB,
                120: 99 * KIB}
UNASKED_BYTES = 48 * KIB
# The fewest kernels that must have been launched, without and with "models::". With fewer, the
# tests no longer launch the kernels that are to be checked.
OF_MODELS = "models::"
FEWEST_KERNELS = {"": 100, OF_MODELS: 35}


def load_sass(root):
    path = os.path.join(root, "tools", "sass")
    loader = importlib.machinery.SourceFileLoader("sass", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("sass", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


def most_threads(registers):
    """The most threads of a block: a quarter of a multiprocessor has 16,384 registers, and a warp takes multiples of 256."""
    of_warp = max(-(-registers * 32 // 256) * 256, 256)
    return min(16384 // of_warp * 4 * 32, 1024)


class Kernel:
    registers = shared = 0
    bound = 1024


def kernels_of(sass, cuobjdump, path):
    """The kernels of an object file, as a dictionary: (mangled name, architecture as a number) -> Kernel."""
    found = {}
    architecture = name = None
    for line in sass.output_of([cuobjdump, "-res-usage", path]).splitlines():
        heading = re.search(r"\barch = sm_(\d+)", line)
        if heading:
            architecture = int(heading.group(1))
        heading = re.match(r"\s*Function (\S+):", line)
        if heading:
            name = heading.group(1)
        usage = re.match(r"\s*REG:(\d+) STACK:\d+ SHARED:(\d+)", line)
        if usage:
            kernel = found[name, architecture] = Kernel()
            kernel.registers, kernel.shared = map(int, usage.groups())
            # For 9.0 and later, cuobjdump's figure includes the 1 KiB that the system keeps.
            if architecture >= 90:
                kernel.shared = max(kernel.shared - KIB, 0)
    attribute = None
    for line in sass.output_of([cuobjdump, "-elf", path]).splitlines():
        heading = re.match(r"arch = sm_(\d+)", line)
        if heading:
            architecture = int(heading.group(1))
        heading = re.match(r"\.nv\.info\.(\S+)$", line)
        if heading:
            name = heading.group(1)
        heading = re.match(r"\s*Attribute:\s+(\w+)", line)
        if heading:
            attribute = heading.group(1)
        value = re.match(r"\s*Value:\s+0x([0-9a-f]+) 0x([0-9a-f]+) 0x([0-9a-f]+)", line)
        if value and attribute == "EIATTR_MAX_THREADS" and (name, architecture) in found:
            x, y, z = (int(n, 16) for n in value.groups())
            found[name, architecture].bound = x * y * z
    return found


def complaints(name, architecture, kernel, launch):
    """What is wrong with a launch that the emulated device logged as capability, threads, shared memory and its limit."""
    capability, threads, shared, limit = launch
    said = []
    if threads > kernel.bound:
        said.append(f"{name} of {architecture} is compiled for {kernel.bound} threads and launched with {threads}")
    if threads > most_threads(kernel.registers):
        said.append(f"{name} of {architecture} has {kernel.registers} registers and is launched with {threads} threads")
    # A launch chooses its shared memory for the device, not for the architecture of the code. Code for
    # 8.0 runs on all 8.x, so each launch is checked with the code of its major version.
    if capability // 10 == architecture // 10 and capability in SHARED_BYTES:
        if shared > (limit if limit > 0 else UNASKED_BYTES - kernel.shared):
            said.append(f"{name} of {architecture} has {kernel.shared} bytes of shared memory and asks for {shared} more")
        if kernel.shared + limit > SHARED_BYTES[capability]:
            said.append(f"{name} of {architecture} has {kernel.shared} bytes of shared memory and may have {limit} more, of "
                        f"{SHARED_BYTES[capability]}")
    return said


def test_the_rules():
    assert [most_threads(r) for r in (16, 64, 65, 80, 96, 128, 168, 255)] == [1024, 1024, 896, 768, 640, 512, 384, 256]
    kernel = Kernel()
    kernel.registers, kernel.bound, kernel.shared = 128, 512, 1024
    assert complaints("k", 90, kernel, (90, 512, 47 * KIB, 0)) == []
    assert len(complaints("k", 90, kernel, (90, 544, 0, 0))) == 2
    assert len(complaints("k", 90, kernel, (90, 512, 47 * KIB + 1, 0))) == 1
    assert complaints("k", 90, kernel, (90, 512, 226 * KIB, 226 * KIB)) == []
    assert len(complaints("k", 90, kernel, (90, 512, 226 * KIB, 227 * KIB))) == 1
    assert complaints("k", 80, kernel, (90, 512, 226 * KIB, 226 * KIB)) == []
    assert len(complaints("k", 80, kernel, (89, 512, 99 * KIB, 99 * KIB))) == 1


def short(sass, name):
    """A demangled name without namespaces, except for models::, whose kernels may have the names of other kernels."""
    return (OF_MODELS if "::" + OF_MODELS in name.split("(anonymous")[0] else "") + sass.plain(name)


def launches_of(sass, logs):
    """The launches of kernels in logs of the emulated device: short name -> set of launches."""
    rows = []
    for log in logs:
        with open(log, encoding="utf-8") as lines:
            rows += [line.split() for line in lines]
    names = sass.demangled({row[4] for row in rows})
    launches = {}
    for row in rows:
        # Only kernels of the library are in namespaces named cuda; those of tests are not.
        if "::cuda::" in names[row[4]]:
            launches.setdefault(short(sass, names[row[4]]), set()).add(tuple(map(int, row[:4])))
    return launches


def main():
    root, build, *logs = sys.argv[1:]
    test_the_rules()
    sass = load_sass(root)
    try:
        cuobjdump = sass.find_cuobjdump(None)
    except sass.Failure as failure:
        print(failure)
        return SKIPPED
    compiled = {}
    for path in sass.objects(build.split(",")):
        found = kernels_of(sass, cuobjdump, path)
        names = sass.demangled({name for name, _ in found})
        for (name, architecture), kernel in found.items():
            compiled.setdefault(short(sass, names[name]), []).append((architecture, kernel))
    launches = launches_of(sass, logs)
    said = []
    for name, of_kernel in sorted(launches.items()):
        if name not in compiled:
            said.append(f"{name} is launched, and no object has it")
        for architecture, kernel in compiled.get(name, []):
            for launch in sorted(of_kernel):
                said += complaints(name, architecture, kernel, launch)
    for kind, fewest in FEWEST_KERNELS.items():
        count = sum(name.startswith(OF_MODELS) == (kind == OF_MODELS) for name in launches)
        if count < fewest:
            said.append(f"only {count} kernels {'of models ' if kind else ''}were launched")
    for line in said:
        print(line)
    print(f"{len(launches)} kernels were launched, {len(said)} complaints")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
