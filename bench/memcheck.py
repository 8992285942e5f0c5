#!/usr/bin/env python3
"""Runs the tests that need a GPU under compute-sanitizer's memcheck, and records its output.

    bench/memcheck.py [--build build/gpu] [--out bench/results] [--seconds 300] [--tests REGEX]

Writes <out>/<date>-<gpu>-memcheck.txt: one line for each test, and memcheck's output if it found an error. Excludes
tests whose kernels touch paused memory on purpose, and tests that need launches that do not wait, because memcheck
makes them wait. Calls that the driver refuses are not errors: tests provoke refusals. Exits with 1 if any test failed,
memcheck found an error, or not all tests finished within --seconds.
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from run import ROOT, machine, output_of, short

LEFT_OUT = re.compile(r"lost_device|transfer")
COMMAND = ["compute-sanitizer", "--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "99"]


def tests_of(build, pattern):
    listed = json.loads(output_of("ctest", "--test-dir", str(build), "-L", "gpu", "-R", pattern, "--show-only=json-v1"))
    for test in listed["tests"]:
        if not LEFT_OUT.search(test["name"]):
            properties = {p["name"]: p["value"] for p in test.get("properties", [])}
            yield test["name"], test.get("command"), properties


def check(name, command, properties, ends):
    """Runs one test. Returns its name, the verdict, the seconds, and its output unless it passed."""
    if command is None:
        return name, "not built", 0.0, ""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as log:  # not a pipe: children that outlive a killed test would keep it open
        with subprocess.Popen([*COMMAND, *command], cwd=properties.get("WORKING_DIRECTORY", ROOT), stdout=log,
                              stderr=subprocess.STDOUT, start_new_session=True) as process:
            try:
                code = process.wait(timeout=max(1, ends - begun))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return name, "timeout", time.monotonic() - begun, ""
        log.seek(0)
        said = log.read().decode(errors="replace")
    took = time.monotonic() - begun
    found = re.findall(r"ERROR SUMMARY: (\d+) error", said)
    if re.search(r"^skipped: ", said, re.MULTILINE):
        return name, "skipped", took, ""
    if code == 0 and found and all(count == "0" for count in found):
        return name, "no errors", took, ""
    return name, f"exit {code}, errors {found or 'not counted'}", took, said[-4000:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/gpu")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--tests", default="gpu", help="regular expression, as for ctest -R")
    options = parser.parse_args()
    about, ends = machine(), time.monotonic() + options.seconds
    # Sequential, because tests check the device's memory; the longest last, because time may run out.
    tests = sorted(tests_of(options.build, options.tests), key=lambda test: "host_backup" in test[0])
    results = [check(*test, ends) for test in tests]
    good = bool(results) and all(verdict in ("no errors", "skipped") for _, verdict, _, _ in results)
    lines = [f"{' '.join(COMMAND)}; tests: {options.tests}"]
    lines += [", ".join(f"{key} {value}" for key, value in about.items()), ""]
    lines += [f"{name:<44} {took:6.1f} s  {verdict}" for name, verdict, took, _ in results]
    lines += [f"\n=== {name} ===\n{said}" for name, _, _, said in results if said]
    checked = sum(verdict == "no errors" for _, verdict, _, _ in results)
    lines += ["", f"{checked} of {len(results)} tests ran without an error" + ("" if good else "; not all passed")]
    path = options.out / f"{about['date']}-{short(about['gpu'])}-memcheck.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines[2:]))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
