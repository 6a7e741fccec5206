# SPDX-License-Identifier: Apache-2.0
"""Files that `switchback-bench` writes, and those next to them: places that cannot be written, names in any bytes,
companions of any content, and the output on a terminal.

    output_files.py PROGRAM REPOSITORY
"""
import csv
import io
import json
import os
import pty
import shutil
import subprocess
import tempfile

from reading import OWN, PROGRAM, PUBLISHED, Case, bench, main, pictures_of, records_of, write_lines


class Outputs(Case):
    # Every command that writes a file: its arguments, and the option that names the file.
    def outputs(self, place):
        text = os.path.join(place, "text.txt")
        with open(text, "w", encoding="utf-8") as out:
            out.write("to be or not to be, that is the question " * 40)
        tiny = ["--device", "cpu", "--threads", "1"]
        stack = ["--d-model", "16", "--layers", "1", "--heads", "2", "--context", "8", "--batch", "2"]
        return {
            "run": (["run", "--shape", "2,16,16", "--repeat", "3", "--no-ceilings", *tiny], "--out"),
            "multimodel": (["multimodel", "--models", "2", "--shape", "4,16,24", "--steps",
                            "3", *tiny], "--out"),
            "fragmented": (["fragmented", "--size", "32", "--batch", "2", "--fragments", "2", "--steps", "3", *tiny], "--out"),
            "transformer": (["transformer", *stack, "--vocabulary", "40", "--steps", "3", "--tune", "0", *tiny], "--out"),
            "pipeline": (["pipeline", "--layers", "1", "--batch", "2", "--context", "4", "--stages", "1",
                          "--microbatches", "1", "--steps", "2", *tiny], "--out"),
            "accum": (["accum", *tiny], "--out"),
            "plot": (["transformer", *stack, "--train", text, "--steps", "4", "--mode", "rowwise", *tiny], "--plot"),
            "micro": (["micro", "call", "--min-time", "1ms", *tiny], "--out"),
            "verify": (["verify", "--shape", "1,8,8", "quantize", *tiny], "--out"),
            "report": (["report", OWN, "--format", "html"], "--out"),
            "figure": (["report", PUBLISHED, "--figure", "speedup"], "--out"),
            "merge": (["merge", OWN], "--out"),
        }

    def test_places_that_cannot_be_written(self):
        with tempfile.TemporaryDirectory() as place:
            for name, (command, option) in self.outputs(place).items():
                folder = os.path.join(place, "folder")
                os.makedirs(folder, exist_ok=True)
                places = [os.path.join(place, "nowhere", "a.jsonl"), folder, os.path.join(OWN, "a.jsonl"),
                          os.path.join(place, 300 * "n")]
                for out in places:
                    with self.subTest(name, out=out):
                        done = subprocess.run([PROGRAM, *command, option, out], stdout=subprocess.PIPE,
                                              stderr=subprocess.PIPE)
                        self.assertIn(done.returncode, (1, 2), done.stderr)
                        self.assertIn(out, done.stderr.decode())
                        self.assertNotIn(b"[1/", done.stderr)  # nothing was measured
                        self.assertEqual(done.stdout, b"")
                self.assertEqual(sorted(os.listdir(place)), ["folder", "text.txt"], name)
                self.assertEqual(os.listdir(folder), [], name)

    def test_nothing_is_replaced_unasked(self):
        with tempfile.TemporaryDirectory() as place:
            for name, (command, option) in self.outputs(place).items():
                if name == "plot":
                    continue  # the plot is drawn again after every training, so it may replace an older one
                with self.subTest(name):
                    out = os.path.join(place, name + ".jsonl")
                    with open(out, "w", encoding="utf-8") as kept:
                        kept.write("kept\n")
                    done = subprocess.run([PROGRAM, *command, option, out], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                    self.assertIn(done.returncode, (1, 2), done.stderr)
                    self.assertIn(out, done.stderr.decode())
                    with open(out, encoding="utf-8") as kept:
                        self.assertEqual(kept.read(), "kept\n")
                    self.assertFalse(os.path.exists(os.path.join(place, name + ".run.jsonl")))
                    if name not in ("micro", "verify", "report", "figure", "merge"):
                        continue
                    bench(*command, option, out, "--force")
                    with open(out, encoding="utf-8") as new:
                        self.assertNotEqual(new.read(), "kept\n")

    def test_a_run_file_that_is_in_the_way_leaves_no_records(self):
        with tempfile.TemporaryDirectory() as place:
            command, option = self.outputs(place)["run"]
            out = os.path.join(place, "a.jsonl")
            beside = os.path.join(place, "a.run.jsonl")
            os.mkdir(beside)
            bench(*command, option, out, code=1)
            self.assertFalse(os.path.exists(out))
            os.rmdir(beside)
            write_lines(beside, [{"type": "run_start"}])
            bench(*command, option, out, code=2)
            self.assertFalse(os.path.exists(out))
            self.assertEqual(records_of(beside), [{"type": "run_start"}])
            # merge with --force leaves no run file of other records next to the new ones.
            shutil.copy(PUBLISHED, os.path.join(place, "published.jsonl"))
            bench("merge", os.path.join(place, "published.jsonl"), "--out", out, "--force")
            self.assertFalse(os.path.exists(beside))

    def test_what_is_read_is_not_replaced_by_what_is_made_of_it(self):
        with tempfile.TemporaryDirectory() as place:
            path, link = os.path.join(place, "a.jsonl"), os.path.join(place, "link.jsonl")
            shutil.copy(PUBLISHED, path)
            os.symlink(path, link)
            for out in (path, link):
                for command in (["report", path, "--format", "csv"], ["report", PUBLISHED, "--with", path]):
                    bench(*command, "--out", out, "--force", code=2)
            self.assertEqual(records_of(path), records_of(PUBLISHED))
            text = self.outputs(place)["plot"][0]
            bench(*text, "--plot", text[text.index("--train") + 1], code=2)

    def test_names_in_any_bytes(self):
        name = b"a\xff\xc3(\n<b>&\"'|`$ * \"\"\"'''.jsonl"
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(os.fsencode(place), name)
            shutil.copy(OWN, path)
            shutil.copy(OWN.replace(".jsonl", ".run.jsonl"), path.replace(b".jsonl", b".run.jsonl"))
            bare = os.path.join(os.fsencode(place), b"bare" + name)
            shutil.copy(PUBLISHED, bare)
            for read in (path, bare):
                # bench() decodes the output strictly: bytes that are not UTF-8 are an error.
                for kind in ("table", "markdown", "csv", "json", "html"):
                    with self.subTest(kind):
                        text = bench("report", read, "--with", OWN, "--format", kind)
                        if kind == "json":
                            self.assertEqual(len(json.loads(text)["files"]), 2)
                        elif kind == "csv":
                            for row in csv.DictReader(io.StringIO(text, newline="")):
                                self.assertNotIn(None, row)
                        elif kind == "html":
                            self.assertNotIn("<b>", text)
                            for picture in pictures_of(text):
                                self.check_svg(picture)
                done = subprocess.run([PROGRAM, "compare", read, read], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.assertEqual(done.returncode, 0, done.stderr)
            for kind, (command, option) in self.outputs(place).items():
                out = os.path.join(os.fsencode(place), os.fsencode(kind) + name)
                bench(*command, option, out)
                self.assertGreater(os.path.getsize(out), 0)
                log = out.replace(b".jsonl", b".run.jsonl")
                if os.path.exists(log):
                    records_of(log)  # it is UTF-8
                    bench("report", out, "--format", "json")

    def test_companions_of_any_content(self):
        def broken():
            yield b""
            yield b"\n\n"
            yield b"\x00\xff\xfe garbage"
            yield b"[1,2]\n5\nnull\n\"text\"\n"
            yield b'{"type":"run_start"'
            lines = [json.dumps(line).encode() for line in records_of(OWN.replace(".jsonl", ".run.jsonl"))]
            yield lines[0][:200]
            yield b"\n".join(lines)[:-100]
            for value in (None, 5, "text", [], {}, True):
                start = json.loads(lines[0])
                for key in list(start):
                    if key != "type":
                        yield json.dumps({**start, key: value}).encode() + b"\n" + b"\n".join(lines[1:])
                case = json.loads(lines[1])
                for key in list(case):
                    if key != "type":
                        yield lines[0] + b"\n" + json.dumps({**case, key: value}).encode() + b"\n"

        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "a.jsonl")
            beside = os.path.join(place, "a.run.jsonl")
            shutil.copy(OWN, path)
            commands = [["report", path, "--format", kind] for kind in ("table", "json", "html", "csv", "markdown")]
            commands += [["compare", path, path]]
            for content in broken():
                with open(beside, "wb") as out:
                    out.write(content)
                for command in commands:
                    done = subprocess.run([PROGRAM, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                    message = (command[:1], command[-1], content[:80], done.stderr)
                    self.assertIn(done.returncode, (0, 1, 2, 3), message)
                    self.assertNotIn(b"json.exception", done.stderr, message)
                    if done.returncode in (1, 2):
                        self.assertIn(b"a.run.jsonl", done.stderr, message)
            os.remove(beside)
            os.mkdir(beside)
            for command in commands:
                done = subprocess.run([PROGRAM, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.assertIn(done.returncode, (1, 2), done.stderr)
                self.assertIn(b"a.run.jsonl", done.stderr)
            os.rmdir(beside)
            for command in commands:
                bench(*command)

    def test_no_records_on_a_terminal(self):
        def on_terminal(*arguments):
            leader, terminal = pty.openpty()
            running = subprocess.Popen([PROGRAM, *arguments], stdout=terminal, stderr=terminal, stdin=subprocess.DEVNULL)
            os.close(terminal)
            text = b""
            while True:
                try:
                    part = os.read(leader, 65536)
                except OSError:  # the program closed its side of the terminal
                    break
                if not part:
                    break
                text += part
            os.close(leader)
            self.assertEqual(running.wait(), 0, text)
            return text.decode()

        multimodel = ["multimodel", "--models", "2", "--shape", "4,16,24", "--steps", "3"]
        for command in (["run", "--shape", "2,16,16", "--repeat", "3", "--no-ceilings"], multimodel, ["accum"]):
            options = [*command, "--device", "cpu", "--threads", "1"]
            with self.subTest(command[0]):
                text = on_terminal(*options)
                self.assertNotIn('{"', text)
                self.assertIn("--out FILE keeps them", text)
                # Records are printed if they are requested, or if the output is a pipe.
                self.assertIn('{"', on_terminal(*options, "--out", "-"))
                self.assertIn('{"', on_terminal(*options, "--quiet"))
                self.assertTrue(bench(*options).startswith('{"'))


if __name__ == "__main__":
    main()
