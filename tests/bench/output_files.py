# SPDX-License-Identifier: Apache-2.0
"""Files that `switchback-bench` writes, and those next to them: places that cannot be written, names in any bytes,
companions of any content, and the output on a terminal.

    output_files.py PROGRAM REPOSITORY
"""
import json
import os
import pty
import shutil
import subprocess
import tempfile

from reading import OWN, PROGRAM, PUBLISHED, Case, bench, main, pictures_of, records_of, rows_of, write_lines


class Outputs(Case):
    # Every command that writes a file: its arguments, and the option that names the file.
    def outputs(self, place):
        text = os.path.join(place, "text.txt")
        with open(text, "w", encoding="utf-8") as out:
            out.write("to be or not to be, that is the question " * 40)
        tiny = ["--device", "cpu", "--threads", "1"]
        return {
            "run": (["run", "--shape", "2,16,16", "--repeat", "3", "--no-ceilings", *tiny], "--out"),
            "accum": (["accum", *tiny], "--out"),
            "plot": (["transformer", "--d-model", "16", "--layers", "1", "--heads", "2", "--context", "8", "--batch", "2",
                      "--train", text, "--steps", "4", "--mode", "rowwise", *tiny], "--plot"),
            "micro": (["micro", "call", "--min-time", "1ms", *tiny], "--out"),
            "verify": (["verify", "--shape", "1,8,8", "quantize", *tiny], "--out"),
            "report": (["report", OWN, "--format", "html"], "--out"),
            "figure": (["report", PUBLISHED, "--figure", "speedup"], "--out"),
            "merge": (["merge", OWN], "--out"),
        }

    def run_program(self, *arguments):
        return subprocess.run([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def test_places_that_cannot_be_written(self):
        with tempfile.TemporaryDirectory() as place:
            for name, (command, option) in self.outputs(place).items():
                folder = os.path.join(place, "folder")
                os.makedirs(folder, exist_ok=True)
                places = [os.path.join(place, "nowhere", "a.jsonl"), folder, os.path.join(OWN, "a.jsonl"),
                          os.path.join(place, 300 * "n")]
                for out in places:
                    with self.subTest(name, out=out):
                        done = self.run_program(*command, option, out)
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
                    done = self.run_program(*command, option, out)
                    self.assertIn(done.returncode, (1, 2), done.stderr)
                    self.assertIn(out, done.stderr.decode())
                    with open(out, encoding="utf-8") as kept:
                        self.assertEqual(kept.read(), "kept\n")
                    self.assertFalse(os.path.exists(os.path.join(place, name + ".run.jsonl")))
                    if name not in ("run", "accum"):
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
                            for row in rows_of(text):
                                self.assertNotIn(None, row)
                        elif kind == "html":
                            self.assertNotIn("<b>", text)
                            for picture in pictures_of(text):
                                self.check_svg(picture)
                done = self.run_program("compare", read, read)
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
            for value in (None, 5, {}):
                for at, line in enumerate(map(json.loads, lines[:2])):
                    for key in line:
                        if key != "type":
                            changed = json.dumps({**line, key: value}).encode()
                            yield b"\n".join([*lines[:at], changed, *lines[at + 1:]])

        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "a.jsonl")
            beside = os.path.join(place, "a.run.jsonl")
            shutil.copy(OWN, path)
            # Every format of a report is made from what one reader returns.
            commands = [["report", path, "--format", "html"], ["compare", path, path]]
            for content in broken():
                with open(beside, "wb") as out:
                    out.write(content)
                for command in commands:
                    done = self.run_program(*command)
                    message = (command[:1], command[-1], content[:80], done.stderr)
                    self.assertIn(done.returncode, (0, 1, 2, 3), message)
                    self.assertNotIn(b"json.exception", done.stderr, message)
                    if done.returncode in (1, 2):
                        self.assertIn(b"a.run.jsonl", done.stderr, message)
            os.remove(beside)
            os.mkdir(beside)
            for command in commands:
                done = self.run_program(*command)
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

        options = ["accum", "--device", "cpu", "--threads", "1"]
        text = on_terminal(*options)
        self.assertNotIn('{"', text)
        self.assertIn("--out FILE keeps them", text)
        # Records are printed if they are requested, or if the output is a pipe.
        self.assertIn('{"', on_terminal(*options, "--out", "-"))
        self.assertIn('{"', on_terminal(*options, "--quiet"))
        self.assertTrue(bench(*options).startswith('{"'))


if __name__ == "__main__":
    main()
