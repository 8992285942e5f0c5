#!/usr/bin/env python3
"""Measures the strength of the tests: changes the library in one place at a time and checks whether a test fails.

    cmake/mutants.py --build build/dev --work DIR --output FILE.txt [--count 140] [--backup 40] [--seed N]

mutations.py defines the mutants. Places are drawn by a seed, by default the commit's: --backup of them in backup/, the
others elsewhere; not in what only a GPU executes. --build is a configured folder whose target `all_tests` is built. A
mutant is compiled into one object file, with all inline functions of its folder. Linked before the objects of all_tests,
its functions are those that the linker takes: some ten seconds a mutant. Instances of templates that only tests have are
not replaced. Which files of tests execute a line is measured first, with gcov, and kept in DIR (all of share/, whose
processes are killed before gcov has written anything). They run, the folder's own first, then the quick ones, on both
machines, until one fails or takes twelve times as long as before. A mutant that does not compile says nothing about tests
and is replaced by another one. FILE.txt is written after each mutant; called again, it is continued: without the lines of
its survivors, these are tried once more.
"""
import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import mutations

ROOT = Path(__file__).resolve().parents[1]
LAYERS = "core driver host heap backup arena saver graph share".split()
GPU_ONLY = re.compile(r"/(?:cuda_|nvcomp_|hash_kernel)")  # no test on the host executes these files
FLAGS = ["-std=c++20", "-O0", "-fPIC", "-fvisibility=hidden", "-fkeep-inline-functions", "-DMEMSAVER_COMPILED"]


def done(command, **options):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, **options).returncode == 0


class Bench:
    """A copy of include/ in which one file at a time is changed, and the objects of the tests."""
    def __init__(self, build, work):
        folders = [build / "tests" / "CMakeFiles" / f"{name}.dir" for name in ("test_main", "second_unit", "all_tests")]
        self.objects = [str(path) for folder in folders for path in sorted(folder.rglob("*.o"))] + [str(build / "libmemsaver_cpp.a")]
        units = "".join(path.read_text(encoding="utf-8") for path in sorted(folders[-1].rglob("*.cxx")))
        self.tests = sorted(re.findall(r'"[^"\n]*/tests/(\w+/\w+_test\.cpp)"', units))
        self.work, self.include = work, work / "include"
        shutil.rmtree(self.include, ignore_errors=True)
        shutil.copytree(ROOT / "include", self.include)
        self.text = {path.relative_to(self.include).as_posix(): path.read_text(encoding="utf-8") for layer in LAYERS
                     for path in sorted((self.include / "memsaver" / layer).glob("*.[hi]pp")) if not GPU_ONLY.search(str(path))}

    def compiled(self, layer, *options):
        """Compiles all of a folder. Returns the object file, or None."""
        unit, result = self.work / f"{layer}.cpp", self.work / f"{layer}.o"
        headers = [path.relative_to(self.include).as_posix() for path in (self.include / "memsaver" / layer).glob("*.hpp")]
        headers.sort(key=lambda name: (name.endswith("impl.hpp"), name))
        unit.write_text("".join(f'#include "{name}"\n' for name in headers), encoding="utf-8")
        command = ["g++", *FLAGS, *options, f"-I{self.include}", "-c", unit, "-o", result]
        return str(result) if done(command, cwd=self.work) else None

    def linked(self, objects, *options):
        linker = ["-fuse-ld=lld"] if shutil.which("ld.lld") else []
        program = self.work / "tests"
        return program if done(["g++", *linker, "-Wl,-z,muldefs", *options, *objects, *self.objects, "-ldl", "-o", program]) else None

    def failure(self, program, test, machine, limit, **variables):
        """Runs a file of tests. Returns why it failed, or None."""
        command = [program, f"--machine={machine}", f"--source-file=*/tests/{test}", "--abort-after=1",
                   "--test-case-exclude=*torture*,*limits*"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.work,
                              start_new_session=True, env={**os.environ, **variables}) as process:
            try:
                code = process.wait(limit)
                return f"exit {code}" if code > 0 else f"signal {-code}" if code < 0 else None
            except subprocess.TimeoutExpired:
                return "hangs"
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)  # also the test's children
                except ProcessLookupError:
                    pass

    def measured(self):
        """Returns, for each file of tests, its seconds and the lines of include/ that it executes."""
        objects = [self.compiled(layer, "--coverage") for layer in LAYERS]
        program = self.linked(objects, "--coverage")
        found = {}
        for test in self.tests:
            folder = self.work / "coverage"
            shutil.rmtree(folder, ignore_errors=True)
            begun = time.monotonic()
            why = self.failure(program, test, "host", 600, GCOV_PREFIX=str(folder), GCOV_PREFIX_STRIP=str(len(self.work.parts) - 1))
            seconds = time.monotonic() - begun
            lines = set()
            for counts in folder.glob("*.gcda"):
                shutil.copy(self.work / counts.name.replace(".gcda", ".gcno"), folder)
                said = subprocess.run(["gcov", "--json-format", "--stdout", counts], cwd=folder, capture_output=True, check=True)
                for file in json.loads(said.stdout)["files"]:
                    if file["file"].startswith(f"{self.include}/"):
                        name = file["file"][len(str(self.include)) + 1:]
                        lines |= {f"{name}:{line['line_number']}" for line in file["lines"] if line["count"] > 0}
            found[test] = {"why": why, "seconds": seconds, "lines": sorted(lines)}
            print(f"{test}: {seconds:.1f} s, {len(lines)} lines{f', fails without a mutant: {why}' if why else ''}", flush=True)
        return found

    def verdict(self, site, measured):
        """Tries a mutant. Returns what became of it."""
        path = self.include / site.file
        path.write_text(mutations.apply(self.text[site.file], site), encoding="utf-8")
        layer = site.file.split("/")[1]
        compiled = self.compiled(layer)
        path.write_text(self.text[site.file], encoding="utf-8")
        program = self.linked([compiled]) if compiled else None
        if program is None:
            return "does not compile"
        near = {f"{site.file}:{line}" for line in range(site.line - 2, site.line + 3)} # gcov counts a statement at one of its lines
        reaching = [test for test in self.tests if not measured[test]["why"] and
                    (not near.isdisjoint(measured[test]["lines"]) or (layer == "share" and test.startswith("share/")))]
        reaching.sort(key=lambda test: (not test.startswith(f"{layer}/"), measured[test]["seconds"]))
        for machine in ("host", "nasty"):
            for test in reaching:
                if machine != "host" and not re.search(r"on_(machines|hosts)\)", (ROOT / "tests" / test).read_text(encoding="utf-8")):
                    continue  # a file without a case for the machine fails, mutant or not
                limit = max(40, 12 * measured[test]["seconds"])
                why = self.failure(program, test, machine, limit)
                if why and self.failure(program, test, machine, limit):  # twice, because tests of threads may fail by load
                    return f"killed by {test[:-9].replace('/', '.')} ({why})"
        return f"SURVIVED {len(reaching)} files of tests that reach it"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.txt")
    parser.add_argument("--count", type=int, default=140)
    parser.add_argument("--backup", type=int, default=40)
    parser.add_argument("--seed", type=lambda text: int(text, 0))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    bench = Bench(options.build.resolve(), options.work.resolve())
    reached = bench.work / "reached.json"
    if not reached.exists():
        reached.write_text(json.dumps(bench.measured()), encoding="utf-8")
    measured = json.loads(reached.read_text(encoding="utf-8"))

    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    seed = options.seed or int(commit, 16)
    sites = [site for name, text in bench.text.items() for site in mutations.sites_of(name, text)]
    random.Random(seed).shuffle(sites)
    rows = options.output.read_text(encoding="utf-8").splitlines() if options.output.exists() else [
        f"# {commit}: {len(sites)} places, drawn with the seed {seed:#x}, tried by {len(bench.tests)} files of tests"]
    left = {True: options.backup, False: options.count - options.backup}
    for site in sites:
        backup = site.file.startswith("memsaver/backup/")
        if left[backup] == 0:
            continue
        begin = f"{site.file}:{site.line}  {mutations.shown(site)}  "
        row = next((text for text in rows if text.startswith(begin)), None)
        if row is None:
            row = begin + bench.verdict(site, measured)
            rows.append(row)
            options.output.write_text("\n".join(rows) + "\n", encoding="utf-8")
            print(row, flush=True)
        left[backup] -= not row.endswith("does not compile")
    killed, survived = (sum(text in row for row in rows) for text in ("  killed by ", "  SURVIVED "))
    print(f"{killed + survived} mutants: {killed} killed, {survived} survived")


if __name__ == "__main__":
    main()
