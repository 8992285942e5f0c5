#!/usr/bin/env python3
"""Measures the cost of building the test suite: CPU seconds, user and system, of all processes of the build.

    bench/suite_build.py --tree before=b4a0e2f --tree after=HEAD --work DIR --output bench/results/<date>-suite_build.json

A tree is LABEL=REVISION, extracted from git into DIR, configured with its preset `test` and built from scratch.
"""
import argparse
import datetime
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

from run import ROOT, output_of


def cpu_seconds(tree, jobs):
    """Returns the CPU seconds of one build from scratch."""
    build = tree / "build" / "suite"
    subprocess.run(["cmake", "--preset", "test", "-B", str(build)], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["cmake", "--build", str(build), "--parallel", str(jobs)], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", action="append", required=True, metavar="LABEL=REVISION")
    parser.add_argument("--work", type=Path, required=True, help="a folder for the trees, which must not exist in it")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    rows = []
    for label, revision in (tree.split("=", 1) for tree in arguments.tree):
        tree = arguments.work.resolve() / label
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tree)], check=True)
        subprocess.run(["git", "-C", str(tree), "checkout", "--quiet", revision], check=True)
        commit = output_of("git", "-C", str(tree), "rev-parse", "--short=12", "HEAD")
        rows.append({"tree": label, "commit": commit, "cpu_seconds": cpu_seconds(tree, arguments.jobs)})
        print(f"{label} {commit}: {rows[-1]['cpu_seconds']} s", flush=True)
    ratio = rows[-1]["cpu_seconds"] / rows[0]["cpu_seconds"]
    print(f"{rows[-1]['tree']} / {rows[0]['tree']}: {ratio:.2f}")
    about = {"date": datetime.date.today().isoformat(), "compiler": output_of("c++", "--version").splitlines()[0],
             "cmake": output_of("cmake", "--version").splitlines()[0], "cores": os.cpu_count()}
    arguments.output.write_text(json.dumps({"context": about, "rows": rows, "ratio": ratio}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
