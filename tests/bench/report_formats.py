# SPDX-License-Identifier: Apache-2.0
"""Reads every format of `switchback-bench report` by readers that are not switchback's own: csv, json, xml.etree and
html.parser of Python, and html5lib where it is installed.

    report_formats.py PROGRAM REPOSITORY
"""
import csv
import io
import json
import os
import re
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree

from reading import OWN, PROGRAM, PUBLISHED, ROOT, SVG, Case, Page, bench, main, pictures_of, records_of, words_of, write_lines


def luminance(colour):
    """As the guidelines on contrast define it (WCAG 2)."""
    digits = colour.lstrip("#")
    if len(digits) == 3:
        digits = "".join(2 * d for d in digits)
    parts = [int(digits[i:i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def scaled(record, factor):
    """A record whose floating point products take the given number of times as long."""
    record = dict(record)
    for name in ("standard_fwd", "standard_gx", "standard_gw"):
        record[name] *= factor
    parts = {"time_standard": ("standard_fwd", "standard_gx", "standard_gw"),
             "time_rowwise": ("x_quantize_rowwise", "g_quantize_rowwise", "w_quantize_colwise_transpose",
                              "w_quantize_rowwise", "standard_gw", "rowwise_fwd", "rowwise_bwd"),
             "time_global": ("x_quantize_rowwise", "g_quantize_rowwise", "w_quantize_global",
                             "w_quantize_global_transpose", "standard_gw", "global_fwd", "global_bwd")}
    for total, names in parts.items():
        record[total] = 0.0
        for name in names:
            record[total] += record[name]
    return record


class Formats(Case):
    def noisy(self, place, shape=0, factors=(), doubtful=(), spread=True):
        """Records of the quick grid: one has an interval of a factor of 100, others are in doubt."""
        path = os.path.join(place, "noisy.jsonl")
        records = records_of(OWN)
        for at, factor in factors:
            records[at] = scaled(records[at], factor)
        lines, case = [], 0
        for line in records_of(OWN.replace(".jsonl", ".run.jsonl")):
            if line["type"] == "case":
                if spread and case == shape:
                    for field in line["fields"].values():
                        field["p20_ms"], field["p80_ms"] = field["median_ms"] / 100, field["median_ms"] * 100
                line["disturbed"] = line.get("disturbed", False) or case in doubtful
                case += 1
            lines.append(line)
        write_lines(path, records)
        write_lines(path.replace(".jsonl", ".run.jsonl"), lines)
        return path

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
        for other in ("table", "markdown", "csv", "html"):
            self.assertTrue(bench("report", PUBLISHED, "--format", other))

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
        # All files together have two pictures: the lines, and the comparison with the A100. Each file has
        # two: the heat map and the parts. The file with ceilings has a roofline.
        self.assertEqual(len(pictures), 2 + 2 * 2 + 1)
        for picture in pictures:
            self.check_svg(picture)
        heat = ElementTree.fromstring(next(p for p in pictures if "quick: speed-up" in p))
        numbers = [t.text[:4] for t in heat.iter(SVG + "text") if re.fullmatch(r"\d+\.\d\d( !)?", t.text or "")]
        expected = [f"{r['time_standard'] / min(r['time_rowwise'], r['time_global']):.2f}" for r in records_of(OWN)]
        self.assertEqual(sorted(numbers), sorted(expected))
        for record in records_of(OWN):
            self.assertIn(f"{record['batch_size']}x{record['dim_in']}x{record['dim_out']} rowwise", page.words)
        try:
            import html5lib
        except ImportError:
            return
        html5lib.HTMLParser(strict=True).parse(text)

    def test_one_noisy_row_does_not_make_the_axes(self):
        with tempfile.TemporaryDirectory() as place:
            path = self.noisy(place, factors=[(3, 1e6)], doubtful=[3])
            page = bench("report", path, "--format", "html")
        for picture in pictures_of(page)[:2]:  # the lines, and the comparison with the A100
            svg = self.check_svg(picture)
            marks = [float(t.text) for t in svg.iter(SVG + "text")
                     if t.get("text-anchor") == "end" and re.fullmatch(r"-?[\d.e+-]+", t.text or "")]
            self.assertLess(max(marks), 10)
            beyond = [p for p in svg.iter(SVG + "path") if p.get("class") == "beyond"]
            self.assertGreaterEqual(len(beyond), 2)  # the long interval and the far point
            self.assertTrue(any((p.find(SVG + "title").text or "").startswith(("to ", "1x2048")) for p in beyond))
            self.assertTrue(any("continues beyond" in (t.text or "") for t in svg.iter(SVG + "text")))

    def test_doubt_shows_on_every_colour_and_in_every_plot(self):
        with tempfile.TemporaryDirectory() as place:
            # The speed-ups are coloured from strong orange to strong blue. Every second case is in doubt.
            factors = [(i, f) for i, f in enumerate((0.1, 0.15, 0.3, 0.4, 0.7, 1, 1, 1.3, 1.6, 2, 2.5, 3, 4))]
            doubtful = list(range(1, 13, 2))
            page = bench("report", self.noisy(place, factors=factors, doubtful=doubtful, spread=False), "--format", "html")
            in_doubt = {r["batch_size"] for i, r in enumerate(records_of(OWN)) if i in doubtful}
        self.assertTrue(in_doubt)
        pictures = pictures_of(page)
        self.assertEqual(len(pictures), 5)
        for picture in pictures:
            self.assertTrue(any((t.text or "").strip().endswith("!") for t in self.check_svg(picture).iter(SVG + "text")))
        heat = ElementTree.fromstring(next(p for p in pictures if "speed-up of a training step over mode" in p))
        cells, fill = [], None
        for element in heat:
            if element.tag == SVG + "rect" and element.get("width") != "100%":
                fill = element.get("fill")
            elif element.tag == SVG + "path" and element.get("class") == "doubt":
                cells.append((fill, element.get("stroke")))
        fills = {}
        for fill, stroke in cells:
            fills.setdefault(fill, []).append(stroke)
        self.assertEqual(len(cells), 2 * sum(1 for t in heat.iter(SVG + "text") if (t.text or "").endswith(" !")))
        self.assertGreaterEqual(len(fills), 5)
        texts = [(e.get("fill"), e.get("stroke")) for e in heat.iter(SVG + "text") if (e.text or "").endswith(" !")]
        for text, around in texts:  # an outline in the cell's colour separates the digits from the hatching
            self.assertIn(around, fills)
            self.assertGreaterEqual(contrast(text, around), 4.5)
        for fill, strokes in fills.items():
            self.assertEqual(len(set(strokes)), 2)
            self.assertGreaterEqual(max(contrast(fill, s) for s in strokes), 4.5, fill)

    def test_answer_and_warning_come_first(self):
        with tempfile.TemporaryDirectory() as place:
            path = self.noisy(place, doubtful=range(1, 13, 2))
            for arguments in ([path], [path, "--with", OWN], [path, "--with", path]):
                page = bench("report", *arguments, "--format", "html")
                first = page.index("<svg")
                self.assertEqual(page[:first].count('class="answer"'), len(arguments) // 2 + 1)
                self.assertEqual(page.count('class="answer"'), len(arguments) // 2 + 1)
                self.assertLess(page.index("Do not trust these numbers"), first)
                self.assertIn("2·batch_size·dim_in·dim_out", page[:first])
            markdown = bench("report", path, "--format", "markdown")
            self.assertLess(markdown.index("Do not trust"), markdown.index("| ---"))
            report = json.loads(bench("report", path, "--format", "json"))["files"][0]
            self.assertFalse(report["trusted"])
            self.assertRegex(report["summary"], r"without the \d+ rows in doubt")

    def test_workload_pages_say_what_is_better(self):
        place = os.path.join(ROOT, "data/records/xeon-spr-2core")
        page = bench("report", os.path.join(place, "pipeline.jsonl"), "--format", "html")
        first = page.index("<svg")
        self.assertIn("memory_ratio (activations, divided by those without checkpointing; less is better): 0.02 to 1.00", page[:first])
        heat = ElementTree.fromstring(pictures_of(page)[0])
        fills, fill = {}, None
        for element in heat:
            if element.tag == SVG + "rect":
                fill = element.get("fill")
            elif fill and re.fullmatch(r"\d+\.\d\d( !)?", element.text or ""):
                fills.setdefault(element.text, fill)
        red, _, blue = (int(fills["0.02"][i:i + 2], 16) for i in (1, 3, 5))
        self.assertGreater(blue, red)  # less memory is good, so it is blue
        red, _, blue = (int(fills["1.17"][i:i + 2], 16) for i in (1, 3, 5))
        self.assertGreater(red, blue)  # a slowdown is bad, so it is red
        self.assertIn("slowdown: a step's time, divided by that without checkpointing (less is better)", words_of(page))
        page = bench("report", os.path.join(place, "multimodel.jsonl"), "--format", "html")
        self.assertLess(page.index("Do not trust"), page.index("<svg"))
        self.assertIn("step_ratio (time of the loop in mode standard, divided by this; more is better)", page[:page.index("<svg")])

    def test_machine_in_words_and_units(self):
        words = words_of(bench("report", OWN, "--format", "html"))
        self.assertIn("23.5 GiB", words)
        self.assertIn("OpenBLAS", words)
        self.assertNotIn("memory_bytes", words)
        self.assertNotIn('{"', words)

    def test_many_series_can_be_told_apart(self):
        with tempfile.TemporaryDirectory() as place:
            path, records = os.path.join(place, "many.jsonl"), []
            for dim in range(64, 64 * 24, 64):
                for batch in (16, 256):
                    sides = {"batch_size": batch, "dim_in": dim, "dim_out": 4 * dim, "wm": 4.0, "switch": False}
                    records.append({**records_of(OWN)[-1], **sides})
            write_lines(path, records)
            svg = self.check_svg(pictures_of(bench("report", path, "--format", "html"))[0])
        looks = []
        for element in svg.iter():  # only the first mark of each line
            if element.tag == SVG + "polyline":
                looks.append(None)
            elif looks and looks[-1] is None and element.tag in (SVG + "circle", SVG + "path"):
                shape = "circle" if element.tag == SVG + "circle" else re.sub(r"^M[\d.]+ [\d.]+", "", element.get("d"))
                looks[-1] = (element.get("fill"), shape)
        self.assertEqual(len(looks), 23)
        self.assertEqual(len(set(looks)), len(looks))

    def test_axes_of_one_shape(self):
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "one.jsonl")
            for at in range(len(records_of(OWN))):
                record = records_of(OWN)[at]
                if max(record["dim_in"], record["dim_out"]) != 4 * min(record["dim_in"], record["dim_out"]):
                    continue
                write_lines(path, [record])
                for figure in ("speedup", "quantize", "parts"):
                    svg = self.check_svg(bench("report", path, "--figure", figure))
                    texts = [t for t in svg.iter(SVG + "text")]
                    labels = [t for t in texts if t.get("text-anchor") == "end"]
                    self.assertGreaterEqual(len(labels), 2)
                    for label in labels:  # labels are right of the axis title, which is rotated around x = 16
                        self.assertGreater(float(label.get("x")) - 12 * 0.58 * len(label.text), 22, label.text)
                    if figure != "parts":
                        self.assertIn("0", [t.text for t in labels])
                        (rule,) = [e for e in svg.iter(SVG + "line") if e.get("class") == "rule"]
                        zero = next(t for t in labels if t.text == "0")
                        self.assertAlmostEqual(float(rule.get("y1")), float(zero.get("y")) - 4, delta=0.2)

    def test_tables_are_made_for_paper(self):
        page = bench("report", os.path.join(ROOT, "data/records/xeon-spr-2core/pipeline.jsonl"), "--format", "html")
        tables = re.findall(r"<table(.*?)</table>", page, re.DOTALL)
        wide = tables[0]
        size = float(re.search(r"--size: ([\d.]+)pt", wide).group(1))
        rows = re.findall(r"<tr>(.*?)</tr>", wide, re.DOTALL)
        columns = [[len(re.sub(r"<[^>]*>", "", c)) for c in re.findall(r"<td>(.*?)</td>", row)] for row in rows[1:]]
        longest = [max(column) for column in zip(*columns)]
        # A digit is about 0.6 times as wide as the font size; 190 mm of paper are 538 points.
        self.assertLess(size * sum(0.6 * n + 0.7 for n in longest), 538)
        self.assertIn("var(--size", page)

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
        self.assertEqual(len(lines), 4)  # batch sizes from 16384 to 131072, as in the published script
        # The y axis is linear, so two known percentages give the percentage of every position.
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
        tiny = {"multimodel": ["--models", "2", "--shape", "4,16,24", "--steps", "3"],
                "fragmented": ["--size", "32", "--batch", "2", "--fragments", "2", "--steps", "3"],
                "transformer": ["--d-model", "16", "--layers", "1", "--heads", "2", "--context", "8", "--batch", "2",
                                "--vocabulary", "40", "--steps", "3", "--tune", "0"],
                "pipeline": ["--layers", "1", "--batch", "2", "--context", "4", "--stages", "1", "2", "--microbatches",
                             "1", "2", "--steps", "2"],
                "accum": [],
                "micro": ["gemm", "quantize", "call", "--shape", "8,64,48", "--min-time", "1ms", "--size",
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
            bench("merge", *parts, "--out", merged, code=2)  # refused, because the file exists
            other = [parts[0], shard("c", records[::2], threads=7)]
            out = os.path.join(place, "mixed.jsonl")
            bench("merge", *other, "--out", out, code=2)
            self.assertFalse(os.path.exists(out) or os.path.exists(out.replace(".jsonl", ".run.jsonl")))
            bench("merge", *other, "--out", out, "--mixed")
            self.assertEqual(len(records_of(out)), len(records))


if __name__ == "__main__":
    main()
