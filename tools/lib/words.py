#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the language of comments and pages: words that have a plainer synonym, and long sentences.

usage: words.py [PATH...]    files or folders; default: all
"""

import os
import re
import subprocess
import sys


MOST_WORDS = 40

# Each idiom is a pattern, and what to write instead of it.
IDIOMS = [
    (r"beside", "next to, apart from, or compared with"),
    (r"behind", "after"),
    (r"in front of", "before"),
    (r"anew", "again"),
    (r"in turns?", "alternately, or one after another"),
    (r"(?<!there )is no(?! longer| more)", "is not a"),
    (r"(?<!there )are no(?! longer| more)", "are not"),
    (r"(?<!there )is none", "does not exist"),
    (r"(?<!there )are none", "do not exist"),
    (r"of (its|their|his|our|your) own(?! \w)", "its own ..., before the noun"),
    (r"so many", "that many, or the number of"),
    (r"as many(?! as| \w+ as| \w+ \w+ as)", "the same number of"),
    (r"nobody|somebody|no one|someone", "who or what it is"),
    (r"manieth", "n-th"),
    (r"kin", "and similar ones"),
    (r"shouted", "printed"),
    (r"what .{1,40} come to", "the result, or the cost"),
    (r"but for", "except for"),
    (r"of none", "of no one: name what is meant"),
    (r"the like", "similar ones"),
]
PATTERNS = [(re.compile(r"\b(" + pattern + r")\b", re.IGNORECASE), instead) for pattern, instead in IDIOMS]


def blocks_of_code(text, marker):
    """Returns (line, text) for each run of comment lines, and for each /* */ comment."""
    blocks, run, first = [], [], 0
    in_block = False
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if marker == "//" and (in_block or stripped.startswith("/*")):
            if not in_block:
                if run:
                    blocks.append((first, "\n".join(run)))
                run, first, in_block = [], number, True
            run.append(re.sub(r"^(/\*+|\*(?!/))|\*/.*$", "", stripped))
            if "*/" in stripped:
                blocks.append((first, "\n".join(run)))
                run, in_block = [], False
            continue
        found = re.match(r"^\s*(///?<?|#+)\s?(.*)$" if marker == "//" else r"^\s*(#)\s?(.*)$", line)
        if found and not (marker == "//" and found.group(1).startswith("#")):
            if not run:
                first = number
            run.append(found.group(2))
            continue
        if run:
            blocks.append((first, "\n".join(run)))
            run = []
        trailing = re.search(r"\s(///?<?|/\*)\s(.*?)(\*/)?$" if marker == "//" else r"\s#\s(.*)$", line)
        if trailing:
            blocks.append((number, trailing.group(2 if marker == "//" else 1)))
    if run:
        blocks.append((first, "\n".join(run)))
    return blocks


def blocks_of_page(text):
    """Returns (line, text) for each paragraph and list entry outside of code and tables."""
    blocks, run, first, in_code = [], [], 0, False
    for number, line in enumerate(text.split("\n") + [""], 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
            line = ""
        if in_code:
            continue
        starts = re.match(r"^\s*([-*]|\d+\.)\s|^#", line)
        if (not line.strip() or starts or line.startswith("|")) and run:
            blocks.append((first, "\n".join(run)))
            run = []
        if line.strip():
            if not run:
                first = number
            run.append(re.sub(r"^\s*([-*]|\d+\.|#+)\s", "", line))
            if line.startswith("|"):
                blocks.append((number, run.pop()))
    return blocks


def plain(text):
    """Returns the text without code, web addresses and link targets."""
    text = re.sub(r"`[^`]*`", "x", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return re.sub(r"https?://\S+", "x", text)


def complaints_about(first, text):
    text = plain(text)
    for pattern, instead in PATTERNS:
        for found in pattern.finditer(text.replace("\n", " ")):
            # A match has the same offset in the text with line ends, which gives its line.
            yield first + text.count("\n", 0, found.start()), f"'{found.group(0)}': write {instead}"
    # A list, a formula or an empty line ends a sentence too.
    for part in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.)\s|\n {3,}|\|", text):
        for sentence in re.split(r"(?<=[.!?:;])\s+", part):
            words = re.findall(r"[A-Za-z][A-Za-z'-]+", sentence)
            if len(words) > MOST_WORDS:
                line = first + text.count("\n", 0, max(text.find(sentence), 0))
                yield line, f"a sentence of {len(words)} words; at most {MOST_WORDS}: {' '.join(words[:8])} ..."


def blocks_of(path):
    # Inputs of fuzz targets, which are in the tree too, may be any bytes.
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    if path.endswith(".md"):
        return blocks_of_page(text)
    if re.search(r"\.(h|hpp|c|cpp|cu|cuh|def|in)$", path):
        return blocks_of_code(text, "//")
    if re.search(r"\.(py|sh|cmake|txt)$", path) or text.startswith("#!"):
        return blocks_of_code(text, "#")
    return []


def test_itself():
    """Tests that this program finds the words and long sentences to avoid, and nothing else."""

    def found(text, page=True):
        blocks = blocks_of_page(text) if page else blocks_of_code(text, "//")
        return [(line, what) for first, block in blocks for line, what in complaints_about(first, block)]

    assert not found("There is no device. `beside` it is no longer used: as many as there are.\n")
    assert [line for line, _ in found("One.\n\nIt lies\nbeside it.\n")] == [4]
    assert len(found("```\nbeside\n```\n| behind | x |\n")) == 1
    assert len(found("word " * 41 + ".\n")) == 1 and not found("word " * 40 + ".\n")
    assert [line for line, _ in found("int x;\n// a\n// anew\nint y;  ///< behind\n", page=False)] == [3, 4]
    assert [line for line, _ in found("// beside\n/* x */\n", page=False)] == [1]
    assert [line for line, _ in found("/* one\n * nobody\n */\n", page=False)] == [2]


def main():
    test_itself()
    paths = sys.argv[1:] or ["."]
    files = subprocess.run(["git", "ls-files", "--", *paths], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    complaints = 0
    for path in files:
        # This file is not checked, because it lists the words.
        if not os.path.exists(path) or path == "tools/lib/words.py":
            continue
        for first, block in blocks_of(path):
            for line, what in complaints_about(first, block):
                print(f"{path}:{line}: {what}")
                complaints += 1
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
