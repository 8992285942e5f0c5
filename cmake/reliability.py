#!/usr/bin/env python3
"""Runs what fails calls on purpose, counts what it tried, and writes the numbers into docs/reliability.md.

    cmake/reliability.py --build build/test    runs the sweeps, the pairs, the model and the fuzzer's corpus of that build
    cmake/reliability.py --check               says whether the numbers are there, and runs nothing

The numbers stand between <!-- numbers:begin --> and <!-- numbers:end -->. With them go the newest results of the soak
(bench/results/*soak*.json, written by bench/soak) and of the fuzzer (bench/results/*fuzz*.txt, its output), where there
are any.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- numbers:begin -->", "<!-- numbers:end -->"
POINTS = re.compile(r"MESSAGE: (.+): (\d+) points")
MODEL = re.compile(r"MESSAGE: (seeds .+, \d+ calls failed)")
REPLAYED = re.compile(r"replayed (\d+) inputs")
FUZZED = re.compile(r"Done (\d+) runs in (\d+) second")


def parts(page):
    """What stands before the marks, between them and after them."""
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        sys.exit(f"docs/reliability.md needs one {BEGIN} and one {END}")
    before, rest = page.split(BEGIN)
    block, after = rest.split(END)
    return before + BEGIN + "\n", block.strip(), END + after


def run(name, command):
    """A program's output; it must have succeeded."""
    start = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    if done.returncode != 0:
        sys.exit(f"{done.stdout[-4000:]}\n{name} failed ({done.returncode}): no numbers were written")
    print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
    return done.stdout


def source(programs, program, name):
    """One test file of a program, as ctest runs it."""
    return [str(programs / program), f"--source-file=*{name}"]


def tables(build):
    """Runs everything; the lines of the block."""
    programs = build / "tests"
    sweeps = sorted(path.name for path in (ROOT / "tests" / "failure").glob("*_sweep_test.cpp"))
    commands = {name: source(programs, "failure_tests", name) for name in [*sweeps, "pairs_test.cpp"]}
    commands["model"] = source(programs, "model_tests", "failing_operations_test.cpp")
    commands["corpus"] = [str(programs / "fuzz_replay"), str(ROOT / "tests" / "fuzz" / "corpus")]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        outputs = dict(zip(commands, pool.map(lambda each: run(*each), commands.items())))

    lines = ["| operation | points tried |", "|---|---:|"]
    total = 0
    for name in sweeps:
        found = POINTS.findall(outputs[name])
        if not found:
            sys.exit(f"{name} told no points: no numbers were written")
        for operation, points in found:
            call, colon, how = operation.partition(": ")
            lines.append(f"| `{call}`{colon}{how} | {int(points):,} |")
        total += sum(int(points) for _, points in found)
    lines += [f"| **all of them** | **{total:,}** |", ""]
    lines.append("Every point is one run with one planned failure, the whole state checked after it; an operation without "
                 "points makes no call that could fail.")
    lines.append("")
    pairs = re.search(r"MESSAGE: pairs: (\d+) points, (seeds .+), (\d+) calls failed", outputs["pairs_test.cpp"])
    model = MODEL.search(outputs["model"])
    replayed = REPLAYED.search(outputs["corpus"])
    if not (pairs and model and replayed):
        sys.exit("pairs, model or corpus told no numbers: none were written")
    lines.append(f"- Pairs of failures: {int(pairs[1]):,}, {pairs[2]}; {int(pairs[3]):,} calls failed.")
    lines.append(f"- Random operations over all policies beside a model: {model[1]}.")
    lines.append(f"- Fuzzer: {replayed[1]} inputs of the corpus replayed{fuzzed()}.")
    return lines + soaked()


def newest(pattern):
    found = sorted((ROOT / "bench" / "results").glob(pattern))
    return found[-1] if found else None


def fuzzed():
    path = newest("*fuzz*.txt")
    done = FUZZED.search(path.read_text(errors="replace")) if path else None
    return f"; the last long run: {int(done[1]):,} runs in {int(done[2]):,} s, no finding" if done else ""


def soaked():
    path = newest("*soak*.json")
    if path is None:
        return ["- Soak on a GPU: no results yet."]
    result = json.loads(path.read_text())
    lines = [f"- Soak on {result['context'].get('gpu', 'a GPU')} (`bench/results/{path.name}`"
             f"{'' if result['context']['good'] else ', **BAD**'}):"]
    runs = {}
    for row in result["benchmarks"]:
        runs.setdefault(row["name"].split("/")[0], []).append(row)
    for name, rows in runs.items():
        def total(key):
            return f"{sum(int(row[key]) for row in rows):,}"

        grown = max(row["resident_last"] - row["resident_first"] for row in rows) / 2**20
        who = f"{len(rows)} processes" if len(rows) > 1 else "1 process"
        lines.append(f"  - {name}, {who} for {max(row['seconds'] for row in rows):.0f} s: {total('cycles')} cycles, "
                     f"{total('contended_resumes')} resumes without room at first ({total('out_of_memory')} times "
                     f"`OutOfMemory`), {total('blocks_compared')} blocks compared, {total('wrong_blocks')} wrong, "
                     f"{total('left_bytes')} bytes left on the device; resident host memory grew by at most {max(grown, 0):.0f} MiB.")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--build", type=Path, help="a build folder with the tests in it")
    what.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    before, block, after = parts(PAGE.read_text())
    if arguments.check:
        if "points tried" not in block:
            sys.exit("docs/reliability.md has no numbers: cmake/reliability.py --build <folder>")
        return
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                            check=False).stdout.strip()
    stamp = time.strftime("%Y-%m-%d") + (f", on top of {commit}" if commit else "")
    lines = [f"The last run: {stamp}.", "", *tables(arguments.build)]
    PAGE.write_text(before + "\n".join(lines) + "\n" + after)


if __name__ == "__main__":
    main()
