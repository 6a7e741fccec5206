# SPDX-License-Identifier: Apache-2.0
"""Reads every format of `switchback-bench report` by readers that are not switchback's own: csv, json, xml.etree and
html.parser of Python, and html5lib where it is installed.

    report_formats.py PROGRAM REPOSITORY
"""
import csv
import html.parser
import io
import json
import math
import os
import re
import subprocess
import sys
import tempfile
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

    VOID = {"meta", "br", "hr", "img", "link"}

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


class Formats(unittest.TestCase):
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

    def test_csv(self):
        rows = list(csv.DictReader(io.StringIO(bench("report", OWN, "--with", PUBLISHED, "--format", "csv"), newline="")))
        expected = records_of(OWN) + records_of(PUBLISHED)
        self.assertEqual(len(rows), len(expected))
        by_shape = {(r["file"], int(r["batch_size"]), int(r["dim_in"]), int(r["dim_out"])): r for r in rows}
        self.assertEqual(len(by_shape), len(rows))
        for record in records_of(OWN):
            row = by_shape["quick", record["batch_size"], record["dim_in"], record["dim_out"]]
            self.assertIsNone(row.get(None))
            for name, value in record.items():
                if isinstance(value, bool):
                    self.assertEqual(row[name], str(value).lower())
                else:
                    self.assertEqual(float(row[name]), value)
            best = min(record["time_rowwise"], record["time_global"])
            self.assertAlmostEqual(float(row["speedup_step"]), record["time_standard"] / best)

    def test_json(self):
        report = json.loads(bench("report", OWN, "--format", "json"))
        (file,) = report["files"]
        self.assertEqual(len(file["records"]), len(records_of(OWN)))
        self.assertEqual(file["machine"]["threads"], 2)
        self.assertIn("for training steps int8", file["summary"])
        self.assertIn("rowwise_fwd", file["engines"])

    def test_records_without_a_run_file(self):
        for arguments in ([PUBLISHED], [PUBLISHED, "--with", PUBLISHED], [OWN, "--with", PUBLISHED]):
            (first, *others) = json.loads(bench("report", *arguments, "--format", "json"))["files"]
            for file in others or [first]:
                self.assertIsNone(file["machine"])
                self.assertIsNone(file["commit"])
                self.assertEqual(len(file["records"]), len(records_of(PUBLISHED)))
        with open(PUBLISHED, "rb") as records:
            done = subprocess.run([PROGRAM, "report", "-", "--format", "json"], stdin=records, stdout=subprocess.PIPE)
        self.assertEqual(done.returncode, 0)
        self.assertIsNone(json.loads(done.stdout)["files"][0]["machine"])
        for other in ("table", "markdown", "csv", "html", "junit"):
            self.assertTrue(bench("report", PUBLISHED, "--format", other))

    def test_junit(self):
        root = ElementTree.fromstring(bench("report", OWN, "--with", PUBLISHED, "--format", "junit").encode())
        self.assertEqual(root.tag, "testsuites")
        suites = root.findall("testsuite")
        self.assertEqual([s.get("name") for s in suites], ["quick", "switchback_a100_2023"])
        for suite, path in zip(suites, (OWN, PUBLISHED)):
            cases = suite.findall("testcase")
            self.assertEqual(len(cases), int(suite.get("tests")))
            self.assertEqual(len(cases), len(records_of(path)))
            self.assertEqual(len(suite.findall("testcase/failure")), int(suite.get("failures")))
        self.assertEqual(int(root.get("tests")), sum(int(s.get("tests")) for s in suites))

    def test_junit_of_cases_that_failed(self):
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "a.jsonl")
            with open(path, "w", encoding="utf-8") as out:
                out.write(json.dumps(records_of(PUBLISHED)[0]) + "\n")
            with open(os.path.join(place, "a.run.jsonl"), "w", encoding="utf-8") as out:
                for line in ({"type": "run_start", "dtype": "f32"},
                             {"type": "case", "id": "1x8x8", "status": "wrong", "why": "a <b> & \"c\""},
                             {"type": "case", "id": "2x8x8", "status": "oom", "why": "needs 9 TiB"}):
                    out.write(json.dumps(line) + "\n")
            root = ElementTree.fromstring(bench("report", path, "--format", "junit").encode())
        self.assertEqual((root.get("tests"), root.get("failures"), root.get("skipped")), ("3", "1", "1"))
        self.assertEqual(root.find(".//failure").get("message"), "a <b> & \"c\"")

    def test_markdown(self):
        text = bench("report", OWN, "--with", PUBLISHED, "--format", "markdown")
        tables, current = [], []
        for line in text.splitlines() + [""]:
            if line.startswith("|"):
                current.append(line)
            elif current:
                tables.append(current)
                current = []
        self.assertEqual(len(tables), 3)
        for table in tables:
            self.assertTrue(re.fullmatch(r"\|( ---: \|)+", table[1]))
            self.assertEqual({line.count("|") for line in table}, {table[0].count("|")})
        self.assertEqual(len(tables[0]) - 2, len(records_of(OWN)))

    def test_html(self):
        text = bench("report", OWN, "--with", PUBLISHED, "--format", "html")
        page = Page()
        page.feed(text)
        page.close()
        self.assertEqual(page.open, [])
        for tag in ("script", "link", "img", "iframe", "object"):
            self.assertNotIn(tag, page.seen)
        for name, value in page.attributes:
            self.assertFalse(name.startswith("on") or name in ("src", "href"), (name, value))
        self.assertEqual(len(page.ids), len(set(page.ids)))
        self.assertIn("@media print", text)
        pictures = re.findall(r"<svg .*?</svg>", text, re.DOTALL)
        # Lines and beside the A100; for each file a heat map and parts; the roofline of the one with ceilings.
        self.assertEqual(len(pictures), 2 + 2 * 2 + 1)
        for picture in pictures:
            self.check_svg(picture)
        heat = ElementTree.fromstring(next(p for p in pictures if "quick: speed-up" in p))
        numbers = [t.text for t in heat.iter(SVG + "text") if re.fullmatch(r"\d+\.\d\d", t.text or "")]
        expected = [f"{r['time_standard'] / min(r['time_rowwise'], r['time_global']):.2f}" for r in records_of(OWN)]
        self.assertEqual(sorted(numbers), sorted(expected))
        for record in records_of(OWN):
            self.assertIn(f"{record['batch_size']}x{record['dim_in']}x{record['dim_out']} rowwise", page.words)
        try:
            import html5lib
        except ImportError:
            return
        html5lib.HTMLParser(strict=True).parse(text)

    def test_stacked_bars_add_up(self):
        text = bench("report", OWN, "--format", "html")
        bars = self.check_svg(next(p for p in re.findall(r"<svg .*?</svg>", text, re.DOTALL) if "time goes, standard" in p))
        lengths = {}
        for rect in bars.iter(SVG + "rect"):
            if rect.find(SVG + "title") is not None:
                lengths[rect.get("y")] = lengths.get(rect.get("y"), 0) + float(rect.get("width"))
        sums = []
        for record in sorted(records_of(OWN), key=lambda r: r["batch_size"] * r["dim_in"] * r["dim_out"]):
            sums += [record[f"time_{way}"] / record["time_standard"] for way in ("standard", "rowwise", "global")]
        scale = 460 / max(sums)
        for length, share in zip(sorted(lengths.values()), sorted(sums)):
            self.assertAlmostEqual(length, share * scale, delta=0.1)

    def test_published_figures(self):
        records = records_of(PUBLISHED)

        def mean(batch, dim, fields):
            both = [r for r in records if r["batch_size"] == batch and {r["dim_in"], r["dim_out"]} == {dim, 4 * dim}]
            return sum(r[f] for r in both for f in fields) / len(both)

        svg = self.check_svg(bench("report", PUBLISHED, "--figure", "speedup"))
        lines = list(svg.iter(SVG + "polyline"))
        self.assertEqual(len(lines), 4)  # batch sizes from 16384 to 131072, as the published script's
        # The picture's axis is linear: percentages follow from positions by two of them.
        sums = ("time_standard", "time_global")
        expected = []
        for dim in (1024, 1280, 1408, 1664, 2048, 4096, 8096):
            standard, other = (mean(16384, dim, (s,)) for s in sums)
            expected.append(100 * (standard - other) / standard)
        ys = [float(p.split(",")[1]) for p in lines[0].get("points").split()]
        slope = (ys[-1] - ys[0]) / (expected[-1] - expected[0])
        self.assertLess(slope, 0)
        for y, value in zip(ys, expected):
            self.assertAlmostEqual(y, ys[0] + slope * (value - expected[0]), delta=0.2)
        self.check_svg(bench("report", PUBLISHED, "--figure", "quantize"))
        parts = self.check_svg(bench("report", PUBLISHED, "--figure", "parts", "--batch", "32768"))
        self.assertEqual(len(list(parts.iter(SVG + "polyline"))), 11)
        bench("report", PUBLISHED, "--figure", "speedup", "--batch", "3", code=2)

    def test_sort_and_files(self):
        rows = csv.DictReader(io.StringIO(bench("report", OWN, "--format", "csv", "--sort", "-speedup_step"), newline=""))
        values = [float(r["speedup_step"]) for r in rows]
        self.assertEqual(values, sorted(values, reverse=True))
        bench("report", OWN, "--sort", "nothing", code=2)
        bench("report", OWN, "--format", "pdf", code=2)
        with tempfile.TemporaryDirectory() as place:
            out = os.path.join(place, "page.html")
            bench("report", OWN, "--format", "html", "--out", out)
            with open(out, encoding="utf-8") as page:
                self.assertEqual(page.read(), bench("report", OWN, "--format", "html"))
            bench("report", OWN, "--out", out, code=2)
            bench("report", OWN, "--out", out, "--force")
            self.assertEqual(os.listdir(place), ["page.html"])

    def test_records_of_every_workload(self):
        tiny = {"multimodel": ["--models", "2", "--batch", "4", "--dim-in", "16", "--dim-out", "24", "--steps", "3"],
                "fragmented": ["--dim", "32", "--batch", "2", "--fragments", "2", "--steps", "3"],
                "transformer": ["--d-model", "16", "--layers", "1", "--heads", "2", "--context", "8", "--batch", "2",
                                "--vocabulary", "40", "--steps", "3", "--tune", "0"],
                "pipeline": ["--layers", "1", "--batch", "2", "--sequence", "4", "--stages", "1", "2", "--microbatches",
                             "1", "2", "--steps", "2"],
                "accum": [],
                "micro": ["gemm", "quantize", "call", "--shape", "8,64,48", "--min-time", "1ms", "--quantize-bytes",
                          "100000"]}
        with tempfile.TemporaryDirectory() as place:
            for name, options in tiny.items():
                with self.subTest(name):
                    path = os.path.join(place, name + ".jsonl")
                    bench(name, *options, "--device", "cpu", "--threads", "1", "--out", path)
                    self.check_formats(name, path)

    def check_formats(self, name, path):
        lines = records_of(path)
        records = [r for r in lines if r.get("type") not in ("micro_start", "micro_end")]
        rows = list(csv.DictReader(io.StringIO(bench("report", path, "--format", "csv"), newline="")))
        self.assertEqual(len(rows), len(records))
        for row, record in zip(rows, records):
            self.assertIsNone(row.get(None))
            self.assertTrue(row["workload"].startswith(name))
            for key, value in record.items():
                if isinstance(value, float):
                    self.assertEqual(float(row[key]), value, key)
                elif isinstance(value, str) and key not in ("workload", "type", "bench"):
                    self.assertEqual(row[key], value, key)
                elif isinstance(value, dict) and "median" in value:
                    self.assertEqual(float(row[key + ".median"]), value["median"], key)
            if name == "micro" and "subject" in record:
                self.assertEqual(row["subject"], record["subject"]["name"])
                self.assertEqual(float(row["subject_ms.median"]), record["subject"]["median_ms"])
        (file,) = json.loads(bench("report", path, "--format", "json"))["files"]
        self.assertEqual(len(file["records"]), len(records))
        self.assertEqual(file["machine"]["threads"], 1)
        suite = ElementTree.fromstring(bench("report", path, "--format", "junit").encode()).find("testsuite")
        self.assertEqual(suite.get("failures"), "0")
        cases = suite.findall("testcase")
        names = [c.get("name") for c in cases]
        self.assertEqual(len(set(names)), len(records) if name == "micro" else len({r["case"] for r in records}), names)
        table = bench("report", path)
        self.assertIn(f"{len(records)} records of {name}", table)
        markdown = [line for line in bench("report", path, "--format", "markdown").splitlines() if line.startswith("|")]
        groups = len({r.get("bench") for r in records})
        self.assertEqual(len(markdown), len(records) + 2 * groups)
        if name == "accum":
            bench("report", path, "--format", "html", code=5)
        else:
            text = bench("report", path, "--with", path, "--format", "html")
            page = Page()
            page.feed(text)
            page.close()
            self.assertEqual(page.open, [])
            self.assertEqual(len(page.ids), len(set(page.ids)))
            pictures = re.findall(r"<svg .*?</svg>", text, re.DOTALL)
            self.assertGreaterEqual(len(pictures), 2)
            for picture in pictures:
                self.check_svg(picture)
        column = {"accum": "sum", "micro": "bench"}.get(name, "synced_ms.median")
        if name != "micro":
            sorted_rows = csv.DictReader(io.StringIO(bench("report", path, "--format", "csv", "--sort", column), newline=""))
            values = [float(r[column]) for r in sorted_rows if r[column]]
            self.assertEqual(values, sorted(values))
        bench("report", path, "--sort", "nothing", code=2)
        bench("report", path, "--figure", "speedup", code=2)
        bench("report", path, "--with", OWN, code=2)

    def test_merge_of_shards(self):
        with open(OWN.replace(".jsonl", ".run.jsonl"), encoding="utf-8") as lines:
            run_lines = [json.loads(line) for line in lines]
        with tempfile.TemporaryDirectory() as place:
            def shard(name, keep, **machine):
                ids = set()
                with open(os.path.join(place, name + ".jsonl"), "w", encoding="utf-8") as out:
                    for record in keep:
                        ids.add(f"{record['batch_size']}x{record['dim_in']}x{record['dim_out']}")
                        out.write(json.dumps(record) + "\n")
                with open(os.path.join(place, name + ".run.jsonl"), "w", encoding="utf-8") as out:
                    for line in run_lines:
                        if line["type"] == "run_start":
                            line = {**line, "machine": {**line["machine"], **machine}}
                        if line["type"] != "case" or line["id"] in ids:
                            out.write(json.dumps(line) + "\n")
                return os.path.join(place, name + ".jsonl")

            records = records_of(OWN)
            parts = [shard("b", records[1::2]), shard("a", records[::2])]
            merged = os.path.join(place, "quick.jsonl")
            bench("merge", *parts, "--out", merged)
            self.assertEqual(sorted(map(str, records_of(merged))), sorted(map(str, records)))
            self.assertEqual(bench("report", merged, "--format", "csv"), bench("report", OWN, "--format", "csv"))
            bench("merge", *parts, "--out", merged, code=2)  # the file exists
            other = [parts[0], shard("c", records[::2], threads=7)]
            out = os.path.join(place, "mixed.jsonl")
            bench("merge", *other, "--out", out, code=2)
            self.assertFalse(os.path.exists(out) or os.path.exists(out.replace(".jsonl", ".run.jsonl")))
            bench("merge", *other, "--out", out, "--mixed")
            self.assertEqual(len(records_of(out)), len(records))

    def test_recommendation(self):
        text = bench("recommend", OWN, "--format", "python")
        module = {}
        exec(compile(text, "modes.py", "exec"), module)
        shapes = json.loads(bench("recommend", OWN, "--format", "json"))["shapes"]
        self.assertEqual(len(shapes), len(records_of(OWN)))
        for shape in shapes:
            sides = shape["batch_size"], shape["dim_in"], shape["dim_out"]
            self.assertEqual(module["training_mode"](*sides), shape["training"]["mode"])
            self.assertEqual(module["inference_mode"](*sides), shape["inference"]["mode"])
        self.assertEqual(module["training_mode"](1, 3, 5), "standard")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
