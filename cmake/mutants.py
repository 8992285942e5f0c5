#!/usr/bin/env python3
"""Measures the strength of the tests: changes the library in one place at a time and checks whether a test fails.

    cmake/mutants.py --build build/dev --work DIR --output FILE.txt [--count 140] [--backup 40] [--seed N]

mutations.py defines the mutants. Places are drawn by a seed, by default the commit's: --backup of them in backup/, the
others elsewhere; not in what only a GPU executes. --build is a configured folder whose target `all_tests` is built. All
mutants are compiled into one program, which is told at run time which one to be (mutants.hpp): ten minutes, then a second
or two a mutant that is killed. Each folder of include/ is an object file with all of its inline functions. Linked before
the objects of all_tests, these are the functions that the linker takes. Not changed, and so reached by no test, are
instances of templates that only tests have, and what the compiler computes. mutants.cpp runs each test case in a process of
its own, first without a mutant, which shows the places that it reaches; kept in DIR. For a mutant the cases that reach it
run, the folder's own first, then the quick ones, on both machines, until one fails or takes twelve times as long as before.
A mutant that does not compile says nothing about tests and is replaced by another one. FILE.txt is written after each
mutant; called again, it is continued: without the lines of its survivors, these are tried once more.
"""
import argparse
import json
import random
import re
import shutil
import subprocess
from pathlib import Path

import mutations

ROOT = Path(__file__).resolve().parents[1]
LAYERS = "core driver host heap backup arena saver graph share".split()
GPU_ONLY = re.compile(r"/(?:cuda_|nvcomp_|hash_kernel)")  # no test on the host executes these files
FLAGS = ["-std=c++20", "-O0", "-w", "-DMEMSAVER_COMPILED", "-include", ROOT / "cmake/mutants.hpp"]
FUNCTIONS = {"==": "std::equal_to<>", "!=": "std::not_equal_to<>", "<": "std::less<>", "<=": "std::less_equal<>",
             ">": "std::greater<>", ">=": "std::greater_equal<>", "+": "std::plus<>", "-": "std::minus<>",
             "+=": "decltype(mutant::add)", "-=": "decltype(mutant::subtract)", "!": "decltype(mutant::no)",
             "": "decltype(mutant::yes)", "++": "decltype(mutant::up)", "--": "decltype(mutant::down)",
             "x++": "decltype(mutant::up_after)", "x--": "decltype(mutant::down_after)"}


def edits(number, site, text):
    """Returns what to write into the text, and where, so that the mutant can be chosen at run time."""
    if site.new == ";":
        return [(site.begin, site.begin, f"if (!mutant::on({number})) ")]
    if site.old in ("&&", "||"):
        asked = f"{number}, {'true' if site.old == '&&' else 'false'}"
        return [(site.begin, site.end, f"&& mutant::first({asked}) || mutant::then({asked}) &&")]
    line = text[text.rindex("\n", 0, site.begin):site.begin]
    operand = re.search(r"(?:\w|\.|->)*$", line)[0] if site.old in ("++", "--") else ""
    x = "x" if operand else ""
    change = f"mutant::Change<{FUNCTIONS[x + site.old]}, {FUNCTIONS[x + site.new]}>{{{number}}}"
    if operand:
        begin = site.begin - len(operand)
        return [(begin, begin, f"{change}("), (site.begin, site.end, ")")]
    if site.old in ("++", "--", "!"):
        return [(site.begin, site.end, f"{change} ->* ")]
    sign = {"+": "+", "-": "+", "+=": "+=", "-=": "+="}.get(site.old, "<<")
    return [(site.begin, site.end, f"{sign} {change} {sign}")]


class Runner:
    """The program with all mutants, on one machine."""
    def __init__(self, program, machine):
        self.process = subprocess.Popen([program, f"--machine={machine}"], cwd=program.parent, text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.files = [line.split("/tests/")[-1].strip() for line in iter(self.process.stdout.readline, "\n")]

    def run(self, case, number, limit):
        """Returns why the case fails with the mutant, or "", its seconds, and without a mutant (0) the places it reached."""
        self.process.stdin.write(f"{case} {number} {limit}\n")
        why, seconds, places = self.process.stdout.readline().split("\t")
        return why, float(seconds), [int(place) for place in places.split()]


class Bench:
    """A copy of include/ with all mutants, compiled, and which cases of the tests reach them."""
    def __init__(self, build, work):
        self.build, self.work, self.include = build, work, work / "include"
        shutil.rmtree(self.include, ignore_errors=True)
        shutil.copytree(ROOT / "include", self.include)
        self.text = {path.relative_to(self.include).as_posix(): path.read_text(encoding="utf-8") for layer in LAYERS
                     for path in sorted((self.include / "memsaver" / layer).glob("*.[hi]pp")) if not GPU_ONLY.search(str(path))}
        self.sites = [site for name, text in self.text.items() for site in mutations.sites_of(name, text)]
        self.numbers = {site: number for number, site in enumerate(self.sites, 1)}
        kept = work / "reached.json"
        if not kept.exists():
            self.left_out = set()
            self.link([self.compiled(layer) for layer in LAYERS])
        self.machines = {machine: Runner(work / "tests", machine) for machine in ("host", "nasty")}
        if not kept.exists():
            kept.write_text(json.dumps([self.text, sorted(self.left_out), self.measured()]), encoding="utf-8")
        text, self.left_out, self.cases = json.loads(kept.read_text(encoding="utf-8"))
        if text != self.text:
            raise SystemExit(f"{work} is of another version of the library")
        self.left_out += [-place for cases in self.cases.values() for case in cases for place in case["places"] if place < 0]

    def compiled(self, layer):
        """Compiles all of a folder. Returns the object file. Leaves out the mutants that do not compile."""
        unit, result = self.work / f"{layer}.cpp", self.work / f"{layer}.o"
        headers = [path.relative_to(self.include).as_posix() for path in (self.include / "memsaver" / layer).glob("*.hpp")]
        headers.sort(key=lambda name: (name.endswith("impl.hpp"), name))
        unit.write_text("".join(f'#include "{name}"\n' for name in headers), encoding="utf-8")
        while True:
            self.write()
            said = subprocess.run(["g++", *FLAGS, "-fPIC", "-fvisibility=hidden", "-fkeep-inline-functions", f"-I{self.include}",
                                   "-c", unit, "-o", result], stderr=subprocess.PIPE, text=True, check=False)
            if said.returncode == 0:
                return result
            lines = set(re.findall(rf"^{self.include}/(\S+?:\d+):\d+:(?! note)", said.stderr, re.MULTILINE))
            wrong = {number: site for site, number in self.numbers.items()
                     if f"{site.file}:{site.line}" in lines and number not in self.left_out}
            if not wrong:
                raise SystemExit(said.stderr)
            self.left_out.update(wrong)
            for site in wrong.values():
                print(f"left out: {site.file}:{site.line}  {mutations.shown(site)}", flush=True)

    def write(self):
        """Writes the files with all mutants that are not left out."""
        for name, text in self.text.items():
            found = [edit for site, number in self.numbers.items() if site.file == name and number not in self.left_out
                     for edit in edits(number, site, text)]
            for begin, end, new in sorted(found, reverse=True):
                text = text[:begin] + new + text[end:]
            (self.include / name).write_text(text, encoding="utf-8")

    def link(self, objects):
        folders = [self.build / "tests" / "CMakeFiles" / f"{name}.dir" for name in ("second_unit", "all_tests")]
        objects += [path for folder in folders for path in sorted(folder.rglob("*.o"))] + [self.build / "libmemsaver_cpp.a"]
        linker = ["-fuse-ld=lld"] if shutil.which("ld.lld") else []
        runner = self.work / "runner.o"
        command = ["g++", *FLAGS, f"-I{ROOT}/include", f"-I{ROOT}/tests", "-c", ROOT / "cmake/mutants.cpp", "-o", runner]
        subprocess.run(command, check=True)
        subprocess.run(["g++", *linker, "-Wl,-z,muldefs", runner, *objects, "-ldl", "-o", self.work / "tests"], check=True)

    def measured(self):
        """Returns, for each machine, the cases that pass on it, with their seconds and the places they reach."""
        found = {}
        for machine, runner in self.machines.items():
            found[machine] = []
            for case, file in enumerate(runner.files):
                why, seconds, places = runner.run(case, 0, 600)
                if not why:
                    found[machine].append({"case": case, "file": file, "seconds": seconds, "places": places})
            print(f"{machine}: {len(found[machine])} of {len(runner.files)} cases", flush=True)
        return found

    def verdict(self, site):
        """Tries a mutant. Returns what became of it."""
        number = self.numbers[site]
        if number in self.left_out:
            return "does not compile"
        layer = site.file.split("/")[1]
        files = set()
        for machine, runner in self.machines.items():
            reaching = [case for case in self.cases[machine] if number in case["places"]]
            reaching.sort(key=lambda case: (not case["file"].startswith(f"{layer}/"), case["seconds"]))
            for case in reaching:
                run = (case["case"], number, int(max(5, 12 * case["seconds"])))
                why = runner.run(*run)[0]
                if why and runner.run(*run)[0]:  # twice, because tests of threads may fail by load
                    return f"killed by {case['file'][:-9].replace('/', '.')} ({why})"
                files.add(case["file"])
        return f"SURVIVED {len(files)} files of tests that reach it"


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

    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    seed = options.seed or int(commit, 16)
    sites = list(bench.sites)
    random.Random(seed).shuffle(sites)
    rows = options.output.read_text(encoding="utf-8").splitlines() if options.output.exists() else [
        f"# {commit}: {len(sites)} places, drawn with the seed {seed:#x}, tried by {len(bench.cases['host'])} cases of tests"]
    left = {True: options.backup, False: options.count - options.backup}
    for site in sites:
        backup = site.file.startswith("memsaver/backup/")
        if left[backup] == 0:
            continue
        begin = f"{site.file}:{site.line}  {mutations.shown(site)}  "
        row = next((text for text in rows if text.startswith(begin)), None)
        if row is None:
            row = begin + bench.verdict(site)
            rows.append(row)
            options.output.write_text("\n".join(rows) + "\n", encoding="utf-8")
            print(row, flush=True)
        left[backup] -= not row.endswith("does not compile")
    killed, survived = (sum(text in row for row in rows) for text in ("  killed by ", "  SURVIVED "))
    print(f"{killed + survived} mutants: {killed} killed, {survived} survived")


if __name__ == "__main__":
    main()
