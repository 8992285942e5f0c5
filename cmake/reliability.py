#!/usr/bin/env python3
"""Runs the tests that inject failures, counts the tried failures, and writes the numbers into docs/reliability.md.

    cmake/reliability.py --build build/test    runs the sweeps, the pairs, the model and the fuzzer's corpus of that build
    cmake/reliability.py --ran build/test      the same from the output of ctest's last run of all tests, without running
    cmake/reliability.py --results             writes only the numbers from bench/results, and runs nothing
    cmake/reliability.py --check               checks that both are there and the latter is up to date; runs nothing

The numbers of the runs are between <!-- numbers:begin --> and <!-- numbers:end -->. Between <!-- results:begin --> and
<!-- results:end --> are the newest results of the soak (*soak*.json), of memcheck (*memcheck*.txt) and of the fuzzer
(*fuzz*.txt, the last lines of its processes), if there are any.
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
NUMBERS, RESULTS = "numbers", "results"
POINTS = re.compile(r"MESSAGE: (.+): (\d+) points")
MODEL = re.compile(r"MESSAGE: (seeds .+, \d+ calls failed)")
REPLAYED = re.compile(r"replayed (\d+) inputs")
FUZZED = re.compile(r"Done (\d+) runs in (\d+) second")


def replace(page, name, lines):
    """Returns the page with new lines between the marks of that name, and the old lines."""
    begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        sys.exit(f"docs/reliability.md needs one {begin.strip()} and one {end}")
    before, rest = page.split(begin)
    block, after = rest.split(end)
    return before + begin + "".join(f"{line}\n" for line in lines) + end + after, block


def run(name, command):
    """Returns a program's output; the program must succeed."""
    start = time.monotonic()
    done = subprocess.run(command, env={**os.environ, "MEMSAVER_SWEEP_STEP": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    if done.returncode != 0:
        sys.exit(f"{done.stdout[-4000:]}\n{name} failed ({done.returncode}); no numbers were written")
    print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
    return done.stdout


def source(programs, program, name):
    """Returns the command for one test file of a program, as ctest runs it."""
    return [str(programs / program), f"--source-file=*{name}"]


def outputs_of(build, sweeps):
    """Runs everything; returns the outputs."""
    programs = build / "tests"
    commands = {name: source(programs, "failure_tests", name) for name in [*sweeps, "pairs_test.cpp"]}
    commands["model"] = source(programs, "model_tests", "failing_operations_test.cpp")
    commands["corpus"] = [str(programs / "fuzz_replay"), str(ROOT / "tests" / "fuzz" / "corpus")]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return dict(zip(commands, pool.map(lambda each: run(*each), commands.items())))


def outputs_in(log, sweeps):
    """Returns the outputs of ctest's last run; all must have passed."""
    text = log.read_text(errors="replace")
    ran = {entry.split("\n", 1)[0]: entry for entry in re.split(r"^\d+/\d+ Testing: ", text, flags=re.MULTILINE)}
    names = {name: f"failure.{name.removesuffix('_test.cpp')}" for name in [*sweeps, "pairs_test.cpp"]}
    names |= {"model": "model.failing_operations", "corpus": "fuzz.corpus"}
    for test in names.values():
        if "\nTest Passed." not in ran.get(test, ""):
            sys.exit(f"{test} did not pass in {log}; no numbers were written")
        if "sampled: " in ran[test]:
            sys.exit(f"{test} tried a sample in {log}; run all: MEMSAVER_SWEEP_STEP=1 ctest ...")
    return {name: ran[test] for name, test in names.items()}


def tables(build, ran):
    """Returns the lines of the block."""
    sweeps = sorted(path.name for path in (ROOT / "tests" / "failure").glob("*_sweep_test.cpp"))
    outputs = outputs_in(build / "Testing" / "Temporary" / "LastTest.log", sweeps) if ran else outputs_of(build, sweeps)
    lines = ["| sweep | operations | failures injected |", "|---|---:|---:|"]
    total, all_tried = 0, 0
    for name in sweeps:
        found = POINTS.findall(outputs[name])
        if not found:
            sys.exit(f"{name} printed no points; no numbers were written")
        tried = [int(points) for _, points in found if int(points) != 0]  # the others make no call that could fail
        if not tried:
            sys.exit(f"{name} injected no failures; no numbers were written")
        lines.append(f"| [`{name}`](../tests/failure/{name}) | {len(tried)} | {sum(tried):,} |")
        total += sum(tried)
        all_tried += len(tried)
    lines += [f"| **total** | **{all_tried}** | **{total:,}** |", ""]
    lines.append("Each injected failure is one run, after which the entire state is checked. Each sweep prints the number of "
                 "failures (points) per operation.")
    lines.append("")
    pairs = re.search(r"MESSAGE: pairs: (\d+) points, (seeds .+), (\d+) calls failed", outputs["pairs_test.cpp"])
    model = MODEL.search(outputs["model"])
    replayed = REPLAYED.search(outputs["corpus"])
    if not (pairs and model and replayed):
        sys.exit("pairs, model or corpus printed no numbers; none were written")
    lines.append(f"- Pairs of failures: {int(pairs[1]):,}, {pairs[2]}; {int(pairs[3]):,} calls failed.")
    lines.append(f"- Random operations over all policies, compared with a model: {model[1]}.")
    lines.append(f"- Fuzzer: {replayed[1]} corpus inputs replayed.")
    return lines


def newest(pattern):
    found = sorted((ROOT / "bench" / "results").glob(pattern))
    return found[-1] if found else None


def fuzzed():
    path = newest("*fuzz*.txt")
    done = FUZZED.findall(path.read_text(errors="replace")) if path else []
    if not done:
        return ["- Fuzzer: no long run yet."]
    runs, seconds = (sum(int(number) for number in column) for column in zip(*done))
    found = path.read_text(errors="replace").count("\nfound:")
    rest = f"; {found} more stopped at a finding (see the file)" if found else ""
    return [f"- Fuzzer (`bench/results/{path.name}`): {len(done)} processes, {runs:,} runs in {seconds / 60:.0f} minutes of "
            f"process time, no findings{rest}."]


def memchecked():
    path = newest("*memcheck*.txt")
    if path is None:
        return ["- compute-sanitizer's memcheck of the GPU tests: no results yet."]
    about = re.search(r"commit (\w+), date ([\d-]+)", path.read_text())
    tree = f", commit {about[1]}, {about[2]}" if about else ""
    return [f"- compute-sanitizer's memcheck of the GPU tests (`bench/results/{path.name}`{tree}): "
            f"{path.read_text().splitlines()[-1].replace(': NOT good', '; not all passed')}."]


def results():
    """Returns the lines for bench/results."""
    return [*soaked(), *memchecked(), *fuzzed()]


def soaked():
    path = newest("*soak*.json")
    if path is None:
        return ["- Soak on a GPU: no results yet."]
    result = json.loads(path.read_text())
    context = result["context"]
    lines = [f"- Soak on {context.get('gpu', 'a GPU')} (`bench/results/{path.name}`, "
             f"commit {context['commit'][:12]}, {context['date']}"
             f"{'' if result['context']['good'] else ', **FAILED**'}):"]
    runs = {}
    for row in result["benchmarks"]:
        runs.setdefault(row["name"].split("/")[0], []).append(row)
    for name, rows in runs.items():
        def total(key):
            return f"{sum(int(row[key]) for row in rows):,}"

        def grown(first, last):
            return max(0, *(row[last] - row[first] for row in rows), 0) / 2**20

        device = (f"; device memory in use while paused, as reported by the driver, grew by {grown('device_paused_first', 'device_paused_last'):.0f} MiB, and "
                  f"{rows[0]['device_left_bytes'] / 2**20:.0f} MiB were still in use after `close()`" if len(rows) == 1 and "device_left_bytes" in rows[0] else "")
        who = f"{len(rows)} processes" if len(rows) > 1 else "1 process"
        lines.append(f"  - {'Alone' if name == 'alone' else 'Competing for memory' if name == 'contending' else name}, {who} for {max(row['seconds'] for row in rows):.0f} s: {total('cycles')} cycles, "
                     f"{total('contended_resumes')} resumes that ran out of memory at first ({total('out_of_memory')} times "
                     f"`OutOfMemory`), {total('blocks_compared')} blocks compared, {total('wrong_blocks')} wrong, "
                     f"{total('left_bytes')} bytes still mapped after all blocks were freed; resident host memory grew by at most "
                     f"{grown('resident_first', 'resident_last'):.0f} MiB{device}.")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--build", type=Path, help="a build folder with the tests in it")
    what.add_argument("--ran", type=Path, metavar="BUILD")
    what.add_argument("--results", action="store_true")
    what.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    page, _ = replace(PAGE.read_text(), RESULTS, results())
    if arguments.check:
        _, numbers = replace(page, NUMBERS, [])
        if "failures injected" not in numbers:
            sys.exit("docs/reliability.md has no numbers; run cmake/reliability.py --build <folder>")
        if page != PAGE.read_text():
            sys.exit("docs/reliability.md does not match bench/results; run cmake/reliability.py --results")
        return
    if build := arguments.build or arguments.ran:
        commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                                check=False).stdout.strip()
        stamp = time.strftime("%Y-%m-%d") + (f", on top of {commit}" if commit else "")
        page, _ = replace(page, NUMBERS, [f"The last run: {stamp}.", "", *tables(build, arguments.ran)])
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
