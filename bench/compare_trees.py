#!/usr/bin/env python3
"""Runs the same benchmarks of two builds alternately on one machine, and records the ratios of their times.

    bench/compare_trees.py --before DIR=COMMIT --after DIR=COMMIT [--only pause_resume,allocate,backup] [--rounds 3]
                           [--out bench/results]

DIR contains the programs, <name>_bench. Benchmarks that only one of the builds has are left out. A ratio is that of the
medians over all rounds and repetitions; less than 1 means that the later tree is faster. Writes
<out>/<date>-<gpu>-trees.json.
"""
import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from run import ROOT, machine, output_of, short


def build(text):
    """Splits DIR=COMMIT."""
    folder, equals, commit = text.rpartition("=")
    if not equals or not Path(folder).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not an existing folder and a commit, as DIR=COMMIT")
    return Path(folder), commit


def times(program, chosen):
    """Runs one program; returns {benchmark: (time, unit)}. Skipped benchmarks are left out."""
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "out.json"
        command = [str(program), f"--benchmark_out={raw}", "--benchmark_out_format=json", f"--benchmark_filter={chosen}"]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0 or not raw.exists():
            sys.exit(f"{program} failed ({done.returncode}):\n{done.stderr}")
        rows = json.loads(raw.read_text(encoding="utf-8"))["benchmarks"]
    name = program.name.removesuffix("_bench")
    taken = {}
    for row in rows:
        if row.get("error_occurred") or row.get("run_type") == "aggregate":
            continue
        case = re.sub(r"/iterations:\d+|/manual_time", "", row["name"])
        taken.setdefault(case if case.startswith(name) else f"{name}/{case}", []).append((row["real_time"], row["time_unit"]))
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=build, required=True)
    parser.add_argument("--after", type=build, required=True)
    parser.add_argument("--only", default="pause_resume,allocate,backup", help="comma-separated names")
    parser.add_argument("--filter", default=".", help="a regular expression for the benchmarks' names")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    arguments = parser.parse_args()

    trees = {"before": arguments.before, "after": arguments.after}
    measured = {label: {} for label in trees}
    for name in arguments.only.split(","):
        for _ in range(arguments.rounds):
            for label, (folder, _) in trees.items():
                for case, values in times(folder / f"{name}_bench", arguments.filter).items():
                    measured[label].setdefault(case, []).extend(values)

    rows = []
    for case, before in measured["before"].items():
        after = measured["after"].get(case)
        if after is None or before[0][1] != after[0][1]:
            continue
        medians = [statistics.median(value for value, _ in values) for values in (before, after)]
        rows.append({"name": case, "before_commit": arguments.before[1], "unit": before[0][1], "before": medians[0], "after": medians[1], "ratio": medians[1] / medians[0],
                     "all_before": [value for value, _ in before], "all_after": [value for value, _ in after]})
        print(f"{case:<60} {medians[0]:12.4g} {medians[1]:12.4g} {before[0][1]}  {rows[-1]['ratio']:.3f}", flush=True)
    about = machine()
    about["commit"] = arguments.after[1]
    toolkit = re.search(r"release ([\d.]+)", output_of("nvcc", "--version"))
    about |= {"toolkit": toolkit[1] if toolkit else "unknown", "rounds": arguments.rounds,
              "before": arguments.before[1]}
    path = arguments.out / f"{about['date']}-{short(about['gpu'])}-trees.json"
    path.write_text(json.dumps({"context": about, "benchmarks": rows}, indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
