# SPDX-License-Identifier: Apache-2.0
"""For tests of `switchback-bench` in Python, which are called with PROGRAM REPOSITORY: readers of what it writes."""
import csv
import html.parser
import io
import json
import math
import os
import re
import subprocess
import sys
import unittest
import xml.etree.ElementTree as ElementTree

PROGRAM, ROOT = sys.argv[1], sys.argv[2]
OWN = os.path.join(ROOT, "data/records/epyc-zen5-2core/quick.jsonl")
PUBLISHED = os.path.join(ROOT, "data/reference/switchback_a100_2023.jsonl")
SVG = "{http://www.w3.org/2000/svg}"


def bench(*arguments, code=0):
    done = subprocess.run([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == code, (arguments, done.returncode, done.stderr)
    return done.stdout.decode("utf-8")


def records_of(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


class Page(html.parser.HTMLParser):
    """Elements that are opened and closed in order."""

    VOID = {"meta", "br", "hr", "img", "link", "wbr"}

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.seen, self.attributes, self.ids, self.words = [], [], [], [], ""

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        self.attributes += attributes
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data):
        self.words += data


def write_lines(path, lines):
    with open(path, "w", encoding="utf-8") as out:
        out.writelines(json.dumps(line) + "\n" for line in lines)


def pictures_of(page):
    return re.findall(r"<svg .*?</svg>", page, re.DOTALL)


def words_of(page):
    reader = Page()
    reader.feed(page)
    reader.close()
    return reader.words


def rows_of(text):
    """The rows of a CSV."""
    return list(csv.DictReader(io.StringIO(text, newline="")))


class Case(unittest.TestCase):
    def check_page(self, text):
        """Reads a page whose elements are closed in order, and checks its pictures."""
        page = Page()
        page.feed(text)
        page.close()
        self.assertEqual(page.open, [])
        self.assertEqual(len(page.ids), len(set(page.ids)))
        for picture in pictures_of(text):
            self.check_svg(picture)
        return page

    def check_svg(self, text):
        """Parses a picture and checks that everything lies inside of it; returns its elements."""
        root = ElementTree.fromstring(text)
        self.assertEqual(root.tag, SVG + "svg")
        _, _, width, height = (float(v) for v in root.get("viewBox").split())
        for element in root.iter():
            if element.tag.endswith("pattern") or element.tag == SVG + "svg":
                continue
            for name in ("x", "x1", "x2", "cx", "y", "y1", "y2", "cy", "width", "height", "r"):
                value = element.get(name)
                if value is None or value.endswith("%"):
                    continue
                number = float(value)
                self.assertTrue(math.isfinite(number))
                self.assertGreaterEqual(number, 0, ElementTree.tostring(element))
                self.assertLessEqual(number, width if name in ("x", "x1", "x2", "cx", "width") else height,
                                     ElementTree.tostring(element))
        return root


def main():
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
