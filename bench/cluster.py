#!/usr/bin/env python3
"""Measures examples/cluster: the cost of updating a paused rollout, compared with one plain copy and one broadcast.

    bench/cluster.py --program build/gpu/examples/cluster/cluster [--ranks 2,4] [--bytes 8589934592] [--rounds 2]

Runs the program by mpirun with each number of ranks. Its threads may use all cores (by default, Open MPI binds two
ranks to one core each). Writes <out>/<date>-<gpu>x<ranks>-cluster.json. Options of mpirun come from the environment
(OMPI_MCA_...). Exits with 1 if a run fails.
"""
import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from run import ROOT, machine, output_of, short


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--ranks", default="2")
    parser.add_argument("--bytes", type=int, default=8 << 30)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    arguments = parser.parse_args()
    about = machine()
    rows = []
    for ranks in arguments.ranks.split(","):
        environment = dict(os.environ, CLUSTER_MEASURE="1", CLUSTER_BYTES=str(arguments.bytes),
                           CLUSTER_ROUNDS=str(arguments.rounds))
        done = subprocess.run(["mpirun", "--bind-to", "none", "-n", ranks, str(arguments.program)], env=environment, capture_output=True,
                              text=True, check=False)
        sys.stderr.write(done.stderr)
        print(done.stdout, end="")
        if done.returncode != 0:
            return 1
        rows.append({"name": f"cluster/{ranks} ranks", **json.loads(done.stdout.strip().splitlines()[-1])})
    about["mpi"] = output_of("mpirun", "--version").splitlines()[0]
    toolkit = re.search(r"release ([\d.]+)", output_of("nvcc", "--version"))
    about["toolkit"] = toolkit[1] if toolkit else "unknown"
    path = arguments.out / f"{about['date']}-{short(about['gpu'])}x{about['gpus']}-cluster.json"
    path.write_text(json.dumps({"context": about, "benchmarks": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
