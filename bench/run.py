#!/usr/bin/env python3
"""Runs the benchmarks and records their results, with the machine and the commit.

    bench/run.py [--build build/gpu] [--out bench/results] [--only pause_resume,devices] [--list]

Writes <out>/<date>-<gpu>-<name>.json for each program <build>/bench/<name>_bench, and prints a short table. On a
machine without a GPU the files are named "host": for inspection, not for keeping. If the tree is a copy,
MEMSAVER_COMMIT specifies the commit. `backup` creates its files in MEMSAVER_BENCH_DIR (/var/tmp).

    bench/run.py --soak 480 [--contend 150]

runs <build>/bench/soak instead: for the first number of seconds in one process, and for the second in two processes
that together need more memory than there is.
"""
import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HIDDEN = {"bytes", "tensors", "threads", "crew", "live", "bytes_each", "cycles", "blocks"}  # also in benchmark names
STANDARD = {
    "name", "family_index", "per_family_instance_index", "run_name", "run_type", "repetitions", "repetition_index",
    "threads", "iterations", "real_time", "cpu_time", "time_unit", "error_occurred", "error_message", "label",
}


def output_of(*command):
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def machine():
    """Returns the context that a result must record about its origin."""
    gpus = output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
    if shown := os.environ.get("CUDA_VISIBLE_DEVICES"):
        gpus = [gpus[int(i)] for i in shown.split(",") if i.isdigit() and int(i) < len(gpus)]
    name, driver = (gpus[0].split(", ") + [""])[:2] if gpus else ("", "")
    commit = output_of("git", "rev-parse", "--short=12", "HEAD")
    if commit and output_of("git", "status", "--porcelain", "--", "include", "bench", "CMakeLists.txt"):
        commit += "+changes"
    return {
        "gpu": name or "host",
        "gpus": str(len(gpus)),
        "driver": driver or "none",
        "commit": os.environ.get("MEMSAVER_COMMIT") or commit or "unknown",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
    }


def short(name):
    """Converts "NVIDIA H200" to a part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower().replace("nvidia", "")).strip("-")


def run(program, about, out):
    """Runs one program; returns its results and the path of the written file."""
    name = program.name.removesuffix("_bench")
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "out.json"
        command = [str(program), f"--benchmark_out={raw}", "--benchmark_out_format=json"]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0 or not raw.exists():
            raise SystemExit(f"{program.name} failed ({done.returncode}):\n{done.stderr}")
        results = json.loads(raw.read_text(encoding="utf-8"))
    context = results["context"]
    for noise in ("executable", "host_name", "load_avg"):
        context.pop(noise, None)
    context.update(about)
    path = out / f"{about['date']}-{short(about['gpu'])}-{name}.json"
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return results, path


def soak(program, seconds, contend, about, out):
    """Runs the soak alone and with two competing processes; writes both to one file. Returns whether all runs
    succeeded."""
    rows, good = [], True
    for name, arguments in (
        ("alone", ["--seconds", str(seconds), "--share", "30", "--weights", "2048"]),
        ("contending", ["--seconds", str(contend), "--share", "60", "--weights", "512", "--processes", "2"]),
    ):
        if arguments[1] == "0":
            continue
        with tempfile.TemporaryDirectory() as folder:
            raw = Path(folder) / "out.json"
            done = subprocess.run([str(program), *arguments, "--json", str(raw)], text=True, check=False)
            good = good and done.returncode == 0
            results = json.loads(raw.read_text(encoding="utf-8"))
        for row in results["benchmarks"]:
            rows.append({**row, "name": f"{name}/{row['name']}", "seconds": results["context"]["seconds"]})
    path = out / f"{about['date']}-{short(about['gpu'])}-soak.json"
    toolkit = re.search(r"release ([\d.]+)", output_of("nvcc", "--version"))
    context = {**about, "toolkit": toolkit[1] if toolkit else "unknown", "good": good}
    path.write_text(json.dumps({"context": context, "benchmarks": rows}, indent=1) + "\n", encoding="utf-8")
    print(path.name, "passed" if good else "FAILED")
    return good


def table(results):
    for row in results["benchmarks"]:
        name = re.sub(r"/iterations:\d+|/manual_time", "", row["name"])
        if row.get("error_occurred"):
            yield f"  {name:<48} skipped: {row['error_message']}"
            continue
        counters = [
            f"{key}={value:.4g}"
            for key, value in row.items()
            if key not in STANDARD | HIDDEN and isinstance(value, (int, float))
        ]
        yield f"  {name:<48} {row['real_time']:10.3f} {row['time_unit']}  {' '.join(counters)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "gpu")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--only", default="", help="comma-separated names")
    parser.add_argument("--list", action="store_true", help="list the benchmarks and exit")
    parser.add_argument("--soak", type=float, default=0, help="seconds of the soak with one process")
    parser.add_argument("--contend", type=float, default=0, help="seconds of the soak with two processes")
    arguments = parser.parse_args()
    if arguments.soak or arguments.contend:
        arguments.out.mkdir(parents=True, exist_ok=True)
        program = arguments.build / "bench" / "soak"
        return 0 if soak(program, arguments.soak, arguments.contend, machine(), arguments.out) else 1
    wanted = {name for name in arguments.only.split(",") if name}
    programs = sorted(path for path in (arguments.build / "bench").glob("*_bench") if os.access(path, os.X_OK))
    programs = [path for path in programs if not wanted or path.name.removesuffix("_bench") in wanted]
    if not programs:
        raise SystemExit(f"no benchmarks in {arguments.build}/bench; build the target `benchmarks` first")
    if arguments.list:
        print("\n".join(path.name.removesuffix("_bench") for path in programs))
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    about = machine()
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    for program in programs:
        results, path = run(program, about, arguments.out)
        print(path.name)
        print("\n".join(table(results)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
