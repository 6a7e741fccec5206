# SPDX-License-Identifier: Apache-2.0
"""Tests tools/bench without a compiler: what it does before it builds, and that an interrupt ends all its processes.

    bench_tool_test.py REPOSITORY [PROGRAM]
"""
import contextlib
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = sys.argv[1]
PROGRAM = sys.argv[2] if len(sys.argv) > 2 else None

# A stand-in for cmake that configures immediately, and builds until it is stopped.
SLOW_CMAKE = """#!/bin/sh
echo "$@" >>"$CALLS"
case "$*" in *--build*) ;; *) exit 0 ;; esac
echo '[30/120] half of the way'
touch "$BUILDING"
exec sleep 600
"""
# A stand-in for cmake that builds immediately: it makes a program that prints its arguments.
QUICK_CMAKE = """#!/bin/sh
echo "$@" >>"$CALLS"
case "$*" in *--build*) ;; *) exit 0 ;; esac
mkdir -p build/release/bin
cat >build/release/bin/switchback-bench <<'END'
#!/bin/sh
echo "called: $*"
END
chmod +x build/release/bin/switchback-bench
"""


def wait_for(condition, seconds=60):
    """Waits until condition() is true, or for `seconds` seconds; returns whether it became true."""
    for _ in range(seconds * 20):
        if condition():
            return True
        time.sleep(0.05)
    return False


def processes_of(group):
    """The ids of the processes in a process group, without zombies."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as text:
                state, _, its_group = text.read().rsplit(")", 1)[1].split()[:3]
        except (OSError, ValueError, IndexError):
            continue
        if entry.isdigit() and int(its_group) == group and state != "Z":
            found.append(int(entry))
    return found


class BenchTool(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        self.path = os.path.realpath(self.place.name)
        self.root = os.path.join(self.path, "checkout")
        shutil.copytree(os.path.join(ROOT, "tools"), os.path.join(self.root, "tools"))
        shutil.copytree(os.path.join(ROOT, "data/grids"), os.path.join(self.root, "data/grids"))
        os.mkdir(os.path.join(self.path, "bin"))
        self.calls = os.path.join(self.path, "calls")
        self.building_file = os.path.join(self.path, "building")
        self.environment = {**os.environ, "PATH": os.path.join(self.path, "bin") + ":" + os.environ["PATH"],
                            "SWITCHBACK_INSTALL": "0", "CALLS": self.calls, "BUILDING": self.building_file}

    def stand_in(self, text, name="cmake"):
        path = os.path.join(self.path, "bin", name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)

    def tool(self, *arguments):
        return subprocess.run(["sh", os.path.join(self.root, "tools/bench"), *arguments], env=self.environment,
                              cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)

    def test_help_comes_before_anything_is_built(self):
        self.stand_in(SLOW_CMAKE)
        for option in ("--help", "-h"):
            done = self.tool("--quiet", option)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("usage: tools/bench", done.stdout)
            self.assertIn("--max-noise", done.stdout)
        self.assertFalse(os.path.exists(self.calls))

    def test_wrong_arguments_are_refused_before_anything_is_built(self):
        self.stand_in(SLOW_CMAKE)
        for arguments, names in ((["--grids", "quick"], "--grids"), (["quick"], "quick"), (["--shape"], "--shape"),
                                 (["--shape", "1,2"], "1,2"), (["--shape", "1,2,3", "4,5"], "4,5"),
                                 (["--dtype=f64"], "f64"), (["--threads", "two"], "two"),
                                 (["--grid", "nowhere.yaml"], "nowhere.yaml"), (["--deadline", "soon"], "soon"),
                                 (["--out", "nowhere/a.jsonl"], "nowhere/a.jsonl"), (["--out", "."], "--out"),
                                 (["--device", "tpu"], "tpu"), (["--mode", "fast"], "fast"), (["--isa", "z80"], "z80"),
                                 (["--shard", "2"], "--shard"), (["--quiet", "yes"], "yes"), (["--fields", ""], "--fields")):
            with self.subTest(arguments):
                done = self.tool(*arguments)
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertIn(names, done.stderr)
        self.assertFalse(os.path.exists(self.calls))

    def test_arguments_reach_the_program_as_they_are(self):
        self.stand_in(QUICK_CMAKE)
        arguments = ["--shape", "1,64,64", "2x64x64", "--filter", "batch_size=1..2", "--out", "a b.jsonl", "--cold",
                     "--deadline=1.5m", "--axis", "m=1:8:*2", "--engine", "reference"]
        done = self.tool(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[-2:], ["called: info", "called: run " + " ".join(arguments)])

    def test_what_it_does_without_arguments(self):
        self.stand_in(QUICK_CMAKE)
        done = self.tool()
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        records = next(line for line in lines if line.startswith("records: "))[len("records: "):]
        # The last line is the output of the program; before it, the tool says where records are
        # written.
        self.assertEqual(lines[-1], f"called: run --out {records} --grid {self.root}/data/grids/quick.yaml")
        self.assertTrue(records.startswith(self.root + "/build/records/"))

    def test_cuda_only_where_it_can_run(self):
        self.stand_in(QUICK_CMAKE)

        def configured(*arguments):
            shutil.rmtree(os.path.join(self.root, "build"), ignore_errors=True)
            if os.path.exists(self.calls):
                os.remove(self.calls)
            done = self.tool(*arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(self.calls, encoding="utf-8") as calls:
                return next(line for line in calls if "--build" not in line), done.stdout

        for arguments in (["--cuda"], ["--device", "cuda:0", "--dry-run"]):
            self.assertIn("-DSWITCHBACK_CUDA=ON", configured(*arguments)[0])
        if not os.path.exists("/proc/driver/nvidia/version") and shutil.which("nvidia-smi") is None:
            call, output = configured()
            self.assertIn("-DSWITCHBACK_CUDA=OFF", call)
            self.assertIn("--cuda", output)
        self.stand_in("#!/bin/sh\n", "nvidia-smi")
        call, output = configured()
        self.assertIn("-DSWITCHBACK_CUDA=AUTO", call)
        self.assertNotIn("--cuda", output)

    @contextlib.contextmanager
    def building(self, shell):
        """Runs the tool with this shell, in its own process group, until it builds; ends all its processes at the end."""
        self.stand_in(SLOW_CMAKE)
        if os.path.exists(self.building_file):
            os.remove(self.building_file)
        running = subprocess.Popen([shell, os.path.join(self.root, "tools/bench")], env=self.environment, cwd=self.path,
                                   start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.assertTrue(wait_for(lambda: os.path.exists(self.building_file)))
            yield running
        finally:
            if processes_of(running.pid):
                os.killpg(running.pid, signal.SIGKILL)

    def test_an_interrupt_ends_everything(self):
        for shell in filter(shutil.which, ("sh", "dash", "bash")):
            with self.subTest(shell), self.building(shell) as running:
                os.killpg(running.pid, signal.SIGINT)
                self.assertNotEqual(running.wait(timeout=60), 0)
                self.assertTrue(wait_for(lambda: not processes_of(running.pid)), processes_of(running.pid))

    def test_nothing_is_left_of_a_shell_that_was_killed(self):
        with self.building("sh") as running:
            running.kill()
            running.wait()
            # The build itself continues, because it got no signal. The process that reports its progress must end.
            self.assertTrue(wait_for(lambda: len(processes_of(running.pid)) == 1), processes_of(running.pid))

    def test_share_and_time_left_of_a_build(self):
        log = os.path.join(self.root, "build/release/build.log")
        os.makedirs(os.path.dirname(log))
        with open(log, "w", encoding="utf-8") as out:
            out.write("[1/120] a\n[30/120] b\nnot a step\n")
        # sleep() returns at once. After 30 seconds by its count, it reports that the watched
        # process is gone.
        script = f"""
            cd '{self.root}'; . tools/lib/common.sh
            sleep() {{ seconds=$((${{seconds:-0}} + $1)); [ "$seconds" -le 30 ]; }}
            report_build release $$
        """
        done = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=True)
        self.assertEqual(done.stderr, "building release: 25 % (30 of 120 steps), about 2 min left\n")

    def test_the_options_are_those_of_the_program(self):
        if PROGRAM is None:
            self.skipTest("no program")
        text = subprocess.run([PROGRAM, "run", "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
        options = text[text.index("Options:"):text.index("Fields.")]
        entries = re.findall(r"^  (?:-h,)?(--[a-z-]+)((?: [A-Z][A-Z=,/]*(?= |$))?)((?: \.\.\.)?)", options, re.MULTILINE)
        kinds = {name: "listed" if more else "valued" if value else "flags"
                 for name, value, more in entries if name != "--help"}
        with open(os.path.join(ROOT, "tools/bench"), encoding="utf-8") as tool:
            source = tool.read()
        named = {}
        for kind in ("flags", "valued", "listed"):
            for name in re.search(rf"^{kind}='([^']*)'", source, re.MULTILINE).group(1).split():
                named[name] = kind
        self.assertEqual(named, kinds)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
