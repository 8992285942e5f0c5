#!/usr/bin/env python3
"""Runs torch_memory_saver's Python package with memsaver's libraries on a GPU, and checks its behavior.

    run_all.py --libraries <build>/examples/torch_memory_saver [--package <folder>] [--published] [--only preload]

`--package`: the folder with the published package (`pip download torch_memory_saver --no-deps`, unpacked); by default
the installed one. It is not modified: the package and the libraries are copied to a temporary folder. `--published`
runs the same with the package's own libraries. `--tests`: a checkout of torch_memory_saver, whose own tests are run
too, with its Python files; needs pytest. Needs PyTorch. Exits with 1 if a check failed.
"""
import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from pathlib import Path

HERE = Path(__file__).resolve().parent
IN_A_PROCESS_OF_ITS_OWN = ["everything_from_the_start", "wrong_environment"]
# Tests of torch_memory_saver that require behavior which this library omits on purpose.
OTHERWISE = {"test_disk_backup": "looks for files by name; these have none, so that nothing outlives the process"}


def installed_package():
    spec = importlib.util.find_spec("torch_memory_saver")
    if spec is None or spec.origin is None:
        raise SystemExit("torch_memory_saver is not installed; pass its folder with --package")
    return Path(spec.origin).parent.parent


def major():
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("no GPU that PyTorch can use")
    return torch.version.cuda.split(".")[0]


def assemble(package, libraries, folder, cuda):
    """Copies the package's Python files, and next to them two libraries under the names that it looks for."""
    shutil.copytree(package / "torch_memory_saver", folder / "torch_memory_saver", ignore=shutil.ignore_patterns("*.so"))
    found = {}
    for mode in ("torch", "preload"):
        stem = f"torch_memory_saver_hook_mode_{mode}"
        choices = sorted(libraries.glob(f"{stem}_cu{cuda}*.so")) or sorted(libraries.glob(f"{stem}_cu*.so"))
        if len(choices) != 1:
            raise SystemExit(f"{libraries} has {len(choices)} libraries named like {stem}_cu{cuda}.abi3.so")
        found[mode] = folder / f"{stem}_cu{cuda}.abi3.so"
        shutil.copy(choices[0], found[mode])
    return found


class Runner:
    def __init__(self, folder, libraries):
        self.libraries = libraries
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(("TMS_", "MEMSAVER_C"))}
        self.environment["PYTHONPATH"] = f"{folder}:{os.environ.get('PYTHONPATH', '')}"
        self.rows = []

    def note(self, verdict, where, name):
        self.rows.append((verdict, where, name))
        print(f"{verdict:<8} {where:<8} {name}", flush=True)

    def environment_of(self, mode, extra=()):
        environment = {**self.environment, **dict(extra)}
        if mode == "preload":
            environment["LD_PRELOAD"] = str(self.libraries["preload"])
        return environment

    def checks(self, mode, names=(), extra=(), expect_text=None):
        start = "import sys, runpy; from torch_memory_saver import torch_memory_saver as t; " \
                f"t.hook_mode = {mode!r}; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
        command = [sys.executable, "-c", start, str(HERE / "checks.py"), mode, *names]
        done = subprocess.run(command, env=self.environment_of(mode, extra), capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith(("ok ", "skipped ", "FAILED "))]
        for line in lines:
            verdict, _, name = line.partition(" ")
            if verdict == "skipped" and name.partition(":")[0] in IN_A_PROCESS_OF_ITS_OWN and not names:
                continue
            self.note(verdict, mode, name)
        if any(line.startswith("FAILED") for line in lines) or done.returncode not in (0, 1) or not lines:
            print(done.stderr[-6000:], flush=True)
        if done.returncode not in (0, 1):
            self.note("FAILED", mode, f"the process exited with {done.returncode} after {lines[-1] if lines else 'nothing'}")
        if expect_text is not None:
            told = done.stderr.count(expect_text)
            self.note("ok" if told == 1 else "FAILED", mode, f"an invalid value is reported once (reported {told} times)")

    def static_runtime(self, program):
        """Runs a program that is linked with a static CUDA runtime, paused from inside and from outside."""
        environment = self.environment_of("preload", {
            "TMS_INIT_ENABLE": "1", "TMS_INIT_ENABLE_CPU_BACKUP": "1", "MEMSAVER_DRIVER_MIN_BYTES": "1048576"}.items())
        inside = subprocess.run([program, "inside"], env=environment, capture_output=True, text=True, check=False)
        self.note("ok" if inside.returncode == 0 else "FAILED", "static", "paused from inside: " + (inside.stdout + inside.stderr).strip())
        with tempfile.TemporaryDirectory() as folder:
            environment["MEMSAVER_CONTROL"] = f"{folder}/engine-%p.pipe"
            process = subprocess.Popen([program, "outside"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
            try:
                told = self.outside(process, folder)
            except (OSError, RuntimeError) as error:
                process.kill()
                told = f"{error} {process.communicate()[1]}"
            self.note("ok" if told == "" else "FAILED", "static", f"paused from outside {told}")

    def own_tests(self, checkout):
        """Runs torch_memory_saver's tests unchanged."""
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder) / "results.xml"
            environment = {**self.environment, "PYTHONPATH": f"{self.environment['PYTHONPATH']}:{checkout / 'test'}"}
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={results}", "-o", "junit_logging=all",
                       str(checkout / "test" / "test_examples.py")]
            done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
            if not results.exists():
                return self.note("FAILED", "tests", f"pytest did not run: {(done.stdout + done.stderr)[-2000:]}")
            for case in xml.etree.ElementTree.parse(results).iter("testcase"):
                name = case.get("name", "")
                because = OTHERWISE.get(name.partition("[")[0])
                failed = next((case.find(how) for how in ("failure", "error") if case.find(how) is not None), None)
                if case.find("skipped") is not None:
                    self.note("skipped", "tests", f"{name}: {case.find('skipped').get('message')}")
                elif failed is not None and because:
                    self.note("skipped", "tests", f"{name}: failed as expected: {because}")
                elif failed is not None:
                    self.note("FAILED", "tests", name)
                    told = [failed.text or "", *(case.findtext(stream) or "" for stream in ("system-out", "system-err"))]
                    print("\n".join(text[-3000:] for text in told), flush=True)
                else:
                    self.note("ok", "tests", name)

    def outside(self, process, folder):
        ready = process.stdout.readline().split()
        if len(ready) != 2:
            raise RuntimeError("the program did not become ready")
        pipe = Path(folder) / f"engine-{ready[1]}.pipe"
        before = device_used_mib()
        for number, command in enumerate(("pause", "resume"), 1):
            with open(pipe, "w", encoding="utf-8") as file:
                file.write(command + "\n")
            state = Path(f"{pipe}.state")
            deadline = time.monotonic() + 60
            while not state.read_text(encoding="utf-8").startswith(f"{number} "):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"no answer to {command}")
                time.sleep(0.001)
            if state.read_text(encoding="utf-8").split() != [str(number), command, "0"]:
                raise RuntimeError(state.read_text(encoding="utf-8"))
            if command == "pause" and before - device_used_mib() < 1000:
                raise RuntimeError("the pause did not release the memory")
        output, error = process.communicate("go on\n", timeout=60)
        return "" if process.returncode == 0 else output + error


def device_used_mib():
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libraries", type=Path, default=HERE.parents[1] / "build" / "gpu" / "examples" / "torch_memory_saver")
    parser.add_argument("--package", type=Path, default=None)
    parser.add_argument("--published", action="store_true", help="use the package's own libraries, for comparison")
    parser.add_argument("--tests", type=Path, default=None, help="a checkout of torch_memory_saver")
    parser.add_argument("--only", choices=("torch", "preload", "static", "tests"), default=None)
    arguments = parser.parse_args()
    checkout = arguments.tests.resolve() if arguments.tests else None
    package = arguments.package or checkout or installed_package()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        libraries = assemble(package, package if arguments.published else arguments.libraries, folder, major())
        runner = Runner(folder, libraries)
        if arguments.only in (None, "preload"):
            runner.checks("preload")
            runner.checks("preload", ["everything_from_the_start"], {"TMS_INIT_ENABLE": "1", "TMS_INIT_ENABLE_CPU_BACKUP": "1"}.items())
            runner.checks("preload", ["wrong_environment", "regions"], {"TMS_RETAIN_CPU_BACKUP": "perhaps"}.items(), "TMS_RETAIN_CPU_BACKUP=")
        if arguments.only in (None, "torch"):
            runner.checks("torch")
        program = arguments.libraries / "static_runtime"
        if arguments.only in (None, "static") and program.exists() and not arguments.published:
            runner.static_runtime(program)
        if arguments.only in (None, "tests") and checkout:
            runner.own_tests(checkout)
    count = {verdict: sum(row[0] == verdict for row in runner.rows) for verdict in ("ok", "skipped", "FAILED")}
    print(f"{count['ok']} passed, {count['skipped']} skipped, {count['FAILED']} failed")
    return 1 if count["FAILED"] or not count["ok"] else 0


if __name__ == "__main__":
    sys.exit(main())
