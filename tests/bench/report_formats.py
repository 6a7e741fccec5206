# SPDX-License-Identifier: Apache-2.0
"""Reads every format of `switchback-bench report` by readers that are not switchback's own: csv, json, xml.etree and
html.parser of Python, and html5lib where it is installed.

    report_formats.py PROGRAM REPOSITORY
"""
import json
import os
import re
import tempfile
import xml.etree.ElementTree as ElementTree

from reading import OWN, PUBLISHED, ROOT, SVG, Case, bench, main, pictures_of, records_of, rows_of, words_of, write_lines


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
    def noisy(self, place, doubtful, records=None, spread=True):
        """Records of the quick grid: the first has an interval of a factor of 100, others are in doubt."""
        path = os.path.join(place, "noisy.jsonl")
        lines = records_of(OWN.replace(".jsonl", ".run.jsonl"))
        cases = [line for line in lines if line["type"] == "case"]
        for field in cases[0]["fields"].values() if spread else ():
            field["p20_ms"], field["p80_ms"] = field["median_ms"] / 100, field["median_ms"] * 100
        for case in doubtful:
            cases[case]["disturbed"] = True
        write_lines(path, records or records_of(OWN))
        write_lines(path.replace(".jsonl", ".run.jsonl"), lines)
        return path

    def test_csv(self):
        rows = rows_of(bench("report", OWN, "--with", PUBLISHED, "--format", "csv"))
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
        for arguments in ([PUBLISHED], [OWN, "--with", PUBLISHED]):
            file = json.loads(bench("report", *arguments, "--format", "json"))["files"][-1]
            self.assertIsNone(file["machine"])
            self.assertIsNone(file["commit"])
            self.assertEqual(len(file["records"]), len(records_of(PUBLISHED)))
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
        page = self.check_page(text)
        for tag in ("script", "link", "img", "iframe", "object"):
            self.assertNotIn(tag, page.seen)
        for name, value in page.attributes:
            self.assertFalse(name.startswith("on") or name in ("src", "href"), (name, value))
        self.assertIn("@media print", text)
        for word in ("23.5 GiB", "OpenBLAS"):
            self.assertIn(word, page.words)
        for word in ("memory_bytes", '{"'):
            self.assertNotIn(word, page.words)
        pictures = pictures_of(text)
        # All files together have two pictures: the lines, and the comparison with the A100. Each file has
        # two: the heat map and the parts. The file with ceilings has a roofline.
        self.assertEqual(len(pictures), 2 + 2 * 2 + 1)
        heat = ElementTree.fromstring(next(p for p in pictures if "quick: speed-up" in p))
        numbers = [t.text[:4] for t in heat.iter(SVG + "text") if re.fullmatch(r"\d+\.\d\d( !)?", t.text or "")]
        expected = [f"{r['time_standard'] / min(r['time_rowwise'], r['time_global']):.2f}" for r in records_of(OWN)]
        self.assertEqual(sorted(numbers), sorted(expected))
        for record in records_of(OWN):
            self.assertIn(f"{record['batch_size']}x{record['dim_in']}x{record['dim_out']} rowwise", page.words)
        try:
            import html5lib
            html5lib.HTMLParser(strict=True).parse(text)
        except ImportError:
            pass  # it is not installed everywhere

    def test_one_noisy_row_does_not_make_the_axes(self):
        with tempfile.TemporaryDirectory() as place:
            records = records_of(OWN)
            records[3] = scaled(records[3], 1e6)
            page = bench("report", self.noisy(place, [3], records), "--format", "html")
        for picture in pictures_of(page)[:2]:  # the lines, and the comparison with the A100
            svg = self.check_svg(picture)
            marks = [float(t.text) for t in svg.iter(SVG + "text")
                     if t.get("text-anchor") == "end" and re.fullmatch(r"-?[\d.e+-]+", t.text or "")]
            self.assertLess(max(marks), 10)
            beyond = [p for p in svg.iter(SVG + "path") if p.get("class") == "beyond"]
            self.assertGreaterEqual(len(beyond), 2)  # the long interval and the far point
            self.assertTrue(any((p.find(SVG + "title").text or "").startswith(("to ", "1x2048")) for p in beyond))
            self.assertTrue(any("continues beyond" in (t.text or "") for t in svg.iter(SVG + "text")))

    def test_doubt_shows_in_every_plot(self):
        doubtful = list(range(1, 13, 2))
        with tempfile.TemporaryDirectory() as place:
            page = bench("report", self.noisy(place, doubtful, spread=False), "--format", "html")
        pictures = pictures_of(page)
        self.assertEqual(len(pictures), 5)
        for picture in pictures:
            texts = [t.text or "" for t in self.check_svg(picture).iter(SVG + "text")]
            self.assertTrue(any(text.strip().endswith("!") for text in texts))
        heat = ElementTree.fromstring(next(p for p in pictures if "speed-up of a training step over mode" in p))
        hatched = [e.get("stroke") for e in heat.iter(SVG + "path") if e.get("class") == "doubt"]
        marked = [e for e in heat.iter(SVG + "text") if (e.text or "").endswith(" !")]
        self.assertGreaterEqual(len(marked), len(doubtful))
        self.assertEqual(len(hatched), 2 * len(marked))
        self.assertEqual(len(set(hatched)), 2)  # a dark and a light stroke: one of them shows on any colour

    def test_answer_and_warning_come_first(self):
        with tempfile.TemporaryDirectory() as place:
            path = self.noisy(place, range(1, 13, 2))
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

    def test_figures_of_one_shape(self):
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "one.jsonl")
            # The figures show layers with sides of dim and 4·dim: here one slow-down and one speed-up.
            wide = next(r for r in records_of(OWN) if r["wm"] == 4)
            for record in (scaled(wide, 0.1), scaled(wide, 10)):
                write_lines(path, [record])
                self.check_svg(bench("report", path, "--figure", "parts"))
                for figure in ("speedup", "quantize"):
                    svg = self.check_svg(bench("report", path, "--figure", figure))
                    (rule,) = [e for e in svg.iter(SVG + "line") if e.get("class") == "rule"]
                    (zero,) = [t for t in svg.iter(SVG + "text") if t.get("text-anchor") == "end" and t.text == "0"]
                    self.assertAlmostEqual(float(rule.get("y1")), float(zero.get("y")) - 4, delta=0.2)

    def test_stacked_bars_add_up(self):
        text = bench("report", OWN, "--format", "html")
        bars = self.check_svg(next(p for p in pictures_of(text) if "time goes, standard" in p))
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

    def test_sort(self):
        rows = rows_of(bench("report", OWN, "--format", "csv", "--sort", "-speedup_step"))
        values = [float(r["speedup_step"]) for r in rows]
        self.assertEqual(values, sorted(values, reverse=True))
        bench("report", OWN, "--sort", "nothing", code=2)
        bench("report", OWN, "--format", "pdf", code=2)

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
        rows = rows_of(bench("report", path, "--format", "csv"))
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
        if name != "accum":
            page = self.check_page(bench("report", path, "--with", path, "--format", "html"))
            self.assertGreaterEqual(page.seen.count("svg"), 2)
            return
        bench("report", path, "--format", "html", code=5)
        values = [float(r["sum"]) for r in rows_of(bench("report", path, "--format", "csv", "--sort", "sum"))]
        self.assertEqual(values, sorted(values))
        bench("report", path, "--sort", "nothing", code=2)
        bench("report", path, "--figure", "speedup", code=2)
        bench("report", path, "--with", OWN, code=2)

    def test_merge_of_shards(self):
        run_lines = records_of(OWN.replace(".jsonl", ".run.jsonl"))
        with tempfile.TemporaryDirectory() as place:
            def shard(name, keep, **machine):
                path = os.path.join(place, name + ".jsonl")
                ids = {f"{r['batch_size']}x{r['dim_in']}x{r['dim_out']}" for r in keep}
                lines = [line for line in run_lines if line["type"] != "case" or line["id"] in ids]
                lines[0] = {**lines[0], "machine": {**lines[0]["machine"], **machine}}
                write_lines(path, keep)
                write_lines(path.replace(".jsonl", ".run.jsonl"), lines)
                return path

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
