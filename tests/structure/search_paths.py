#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks where the files of a build or of an installation look for libraries: `search_paths.py READELF FOLDER...`. No element
of a RUNPATH or RPATH may be empty or relative, which would mean the current directory of the loading process. None may be a
folder that everyone can write to."""
import os
import re
import stat
import subprocess
import sys


def complaints(readelf, path):
    dynamic = subprocess.run([readelf, "-d", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=True)
    said = []
    for kind, paths in re.findall(r"\((RUNPATH|RPATH)\).*\[(.*)\]", dynamic.stdout):
        for element in paths.split(":"):
            if element == "$ORIGIN" or element.startswith("$ORIGIN/"):
                continue
            if not element.startswith("/"):
                said.append(f"{path}: {kind} [{paths}] has the element '{element}'")
            elif os.path.isdir(element) and os.stat(element).st_mode & stat.S_IWOTH:
                said.append(f"{path}: {kind} [{paths}]: everyone can write to {element}")
    return said


def elf_files(folder):
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)
            if not os.path.islink(path) and os.path.isfile(path):
                with open(path, "rb") as file:
                    if file.read(4) == b"\x7fELF" and (os.access(path, os.X_OK) or ".so" in name):
                        yield path


def main():
    readelf, *folders = sys.argv[1:]
    files = [path for folder in folders for path in elf_files(folder)]
    said = [line for path in files for line in complaints(readelf, path)]
    for line in said:
        print(line)
    print(f"{len(files)} files, {len(said)} complaints")
    return 1 if said or not files else 0


if __name__ == "__main__":
    sys.exit(main())
