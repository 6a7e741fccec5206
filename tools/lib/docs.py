#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what Doxygen does not: enumerators have comments, every exported name is in the reference, and
its first page lists every header.

usage: docs.py XML PAGE HEADER...    the folder of Doxygen's XML, the first page, and the public headers
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as xml


def text_of(element, *parts):
    return "".join("".join(found.itertext()) for part in parts for found in element.iter(part)).strip()


def line_of(lines, name, first=1):
    """The first line from that one on which has the name as a word."""
    return next((n for n, line in enumerate(lines, 1) if n >= first and re.search(rf"\b{name}\b", line)), first)


def exported(text):
    """The names of functions and classes that the library exports."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", lambda comment: re.sub(r"[^\n]", " ", comment[0]), text, flags=re.DOTALL)
    for found in re.finditer(r"\bSWITCHBACK_API\b([^({;:]*(?:::[^({;:]+)*)[({:]", text):
        words = re.findall(r"\w+", found[1])
        if words:
            yield words[-1]


def main():
    headers = {str(pathlib.Path(path).resolve()): pathlib.Path(path) for path in sys.argv[3:]}
    complaints, names = set(), set()
    for page in pathlib.Path(sys.argv[1]).glob("*.xml"):
        root = xml.parse(page).getroot()
        names.update(name.text.split("::")[-1] for name in root.iter("compoundname"))
        names.update(name.text for member in root.iter("memberdef") for name in member.findall("name") if name.text)
        for enum in root.iter("memberdef"):
            location = enum.find("location")
            if enum.get("kind") != "enum" or location is None:
                continue
            path = next((p for full, p in headers.items() if full.endswith(location.get("file"))), None)
            lines = path.read_text(encoding="utf-8").split("\n") if path else []
            for value in enum.findall("enumvalue"):
                if not text_of(value, "briefdescription", "detaileddescription"):
                    name = value.findtext("name")
                    line = line_of(lines, name, int(location.get("line")))
                    complaints.add((str(path), line, f"enumerator {name} has no comment"))
    for path in headers.values():
        text = path.read_text(encoding="utf-8")
        for name in exported(text):
            if name not in names:
                line = line_of(text.split("\n"), name)
                complaints.add((str(path), line, f"{name} is not in the reference: see tools/lib/docs.awk"))
    page = pathlib.Path(sys.argv[2])
    lines = page.read_text(encoding="utf-8").split("\n")
    listed = {found: n for n, line in enumerate(lines, 1) for found in re.findall(r"\bswitchback/\w+\.h(?:pp)?", line)}
    exist = {f"switchback/{path.name}" for path in headers.values()}
    complaints.update((str(page), 1, f"{name} is not listed") for name in exist - set(listed))
    complaints.update((str(page), listed[name], f"{name} does not exist") for name in set(listed) - exist)
    for path, line, what in sorted(complaints):
        print(f"{path}:{line}: {what}")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
