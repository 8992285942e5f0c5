#!/usr/bin/env python3
"""Compares torch_memory_saver's published library, memsaver's drop-in, and a checkpoint of the whole process on the
same workloads, each in its own processes, and records the results.

    bench/peers/compare.py --peer <folder with torch_memory_saver's libraries> [--build build/gpu] [--out bench/results] [--large]

The peer's libraries are in its package: `pip download torch_memory_saver --no-deps`, unpacked. Writes
<out>/<date>-<gpu>-peers.json and prints a table. Needs a GPU and about two minutes. With --large: one large block that
is discarded, in several processes of each library in turn; writes the medians to <out>/<date>-<gpu>-large.json.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import run as house  # noqa: E402: bench/run.py

MIB, GIB = 1 << 20, 1 << 30
SHAPES = [(1, 8 * GIB, "1 x 8 GiB"), (256, 32 * MIB, "256 x 32 MiB"), (4096, 2 * MIB, "4096 x 2 MiB"), (4096, 64 << 10, "4096 x 64 KiB")]
LARGE = [("discard", 8 * GIB, "8 GiB"), ("used", 8 * GIB, "8 GiB"), ("used", 64 * GIB, "64 GiB")]
PROCESSES = 7  # of each library, for one large block


def library(folder, what):
    found = sorted(folder.glob("torch_memory_saver_hook_mode_preload_cu13*.so")) or sorted(
        folder.glob("torch_memory_saver_hook_mode_preload_cu*.so"))
    if not found:
        raise SystemExit(f"{what}: {folder} has no torch_memory_saver_hook_mode_preload_cu*.so")
    return found[-1].resolve()


def output_of(command, environment=None):
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} failed ({done.returncode}):\n{done.stderr}")
    return done.stdout


def workload(programs, preload, kind, count, bytes_each):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TMS_")}
    environment["LD_PRELOAD"] = str(preload)
    return json.loads(output_of([programs / "peers_workload", kind, count, bytes_each], environment).splitlines()[-1])


def checkpoint(programs, count, bytes_each):
    command = [str(programs / "peers_workload"), "hold", str(count), str(bytes_each)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            ready = holder.stdout.readline().split()
            if len(ready) != 2:
                raise SystemExit("the process to checkpoint did not become ready")
            result = json.loads(output_of([programs / "peers_checkpoint", ready[1]]))
            told, _ = holder.communicate("go on\n", timeout=60)
            if told.strip() != "checked":
                raise SystemExit("the restored process has wrong bytes")
            return result
        finally:
            holder.kill()


def rows(programs, libraries):
    """Yields a row for each shape and each contender; the row includes the toolkit, for the caller to remove."""
    found = json.loads(output_of([programs / "peers_workload", "copy", 8 * GIB]))
    yield {"name": "copy/8 GiB/driver", "bytes": 8 * GIB, **found}
    for count, bytes_each, shape in SHAPES:
        for kind in ("discard", "backup"):
            for who, preload in libraries.items():
                found = workload(programs, preload, kind, count, bytes_each)
                yield {"name": f"{kind}/{shape}/{who}", "tensors": count, "bytes": count * bytes_each, **found}
        found = checkpoint(programs, count, bytes_each)
        yield {"name": f"checkpoint/{shape}/driver", "tensors": count, "bytes": count * bytes_each, **found}
    for who, preload in libraries.items():  # right after another process released the rest of the device
        found = workload(programs, preload, "neighbour", 1, 16 * GIB)
        yield {"name": f"neighbour/1 x 16 GiB/{who}", "tensors": 1, "bytes": 16 * GIB, **found}


def large_rows(programs, libraries):
    """Yields a row for each block and each library: the medians of processes that alternate between libraries."""
    for kind, size, shape in LARGE:
        runs = {who: [] for who in libraries}
        for _ in range(PROCESSES):
            for who, preload in libraries.items():
                runs[who].append(workload(programs, preload, kind, 1, size))
        for who, found in runs.items():
            medians = {key: statistics.median(run[key] for run in found) for key, value in found[0].items() if isinstance(value, float)}
            yield {"name": f"{kind}/{shape}/{who}", "bytes": size, "processes": PROCESSES, "toolkit": found[0]["toolkit"], **medians,
                   "each_cycle_ms": [run["cycle_ms"] for run in found]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, required=True, help="the folder with torch_memory_saver's libraries")
    parser.add_argument("--peer-version", default="", help="its version, recorded with the results")
    parser.add_argument("--build", type=Path, default=house.ROOT / "build" / "gpu")
    parser.add_argument("--out", type=Path, default=house.ROOT / "bench" / "results")
    parser.add_argument("--warm", type=int, default=32, help="GiB of host memory to touch first; 0 touches none")
    parser.add_argument("--large", action="store_true", help="measure only one large block, in several processes")
    arguments = parser.parse_args()
    programs = arguments.build / "bench" / "peers"
    libraries = {
        "torch_memory_saver": library(arguments.peer, "--peer"),
        "memsaver": library(arguments.build / "examples" / "torch_memory_saver", "--build"),
    }
    about = house.machine()
    about["peer_version"] = arguments.peer_version or version_of(arguments.peer)
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    if arguments.warm and not arguments.large:
        output_of([programs / "peers_workload", "warm", arguments.warm * GIB])
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"{about['date']}-{house.short(about['gpu'])}-{'large' if arguments.large else 'peers'}.json"
    results = []
    for row in (large_rows if arguments.large else rows)(programs, libraries):
        about["toolkit"] = row.pop("toolkit", about.get("toolkit", "unknown"))
        results.append(row)
        numbers = "  ".join(f"{key}={value:.4g}" for key, value in row.items() if isinstance(value, float))
        print(f"  {row['name']:<44} {numbers}", flush=True)
        path.write_text(json.dumps({"context": about, "benchmarks": results}, indent=1) + "\n", encoding="utf-8")
    print(path)


def version_of(folder):
    """Returns the version of the unpacked package."""
    for path in folder.glob("torch_memory_saver-*.dist-info"):
        return path.name.removeprefix("torch_memory_saver-").removesuffix(".dist-info")
    return "unknown"


if __name__ == "__main__":
    sys.exit(main())
