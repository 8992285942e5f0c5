#!/usr/bin/env python3
"""Measures the compile time of including and using memsaver, and compares trees.

    bench/compile_time.py --tree before=v0.1.0 --tree after=include --output bench/results/<date>-compile_time.json

A tree is LABEL=WHERE, where WHERE is a folder of headers, or a revision whose headers are extracted from git. Sources:
`include` is one line, `gpu` a program of ten lines on a GPU's driver, `both` the same on the host's driver too. Each
compiler compiles each source to an object file with -O2. A figure is the median of the CPU seconds, user and system, of
the compiler and its child processes. Rounds alternate between the trees, so that other load on the machine affects all
equally.

--compiled also measures the form with -DMEMSAVER_COMPILED, in trees that support it, without the toolkit's headers.
"""
import argparse
import datetime
import json
import os
import re
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from run import ROOT, output_of

FLAGS = ["-std=c++20", "-O2", "-c"]
PROGRAM = """
#include <iostream>
using namespace memsaver;
{function}
    const Region region = saver.region("kv_cache");
    const Buffer<float> cache{{region, 16 << 20}};
    const Arena weights = saver.arena("weights", HostBackup{{}});
    void* block = weights.allocate(64_MiB);
    saver.pause({{"kv_cache", "weights"}});
    saver.resume({{"kv_cache", "weights"}});
    std::cout << saver.usage();
    weights.deallocate(block);
}}
{main}"""
INCLUDE = "#include <memsaver/memsaver.hpp>\n"
SOURCES = {
    "include": INCLUDE,
    "gpu": INCLUDE + PROGRAM.format(function="int main() {\n    MemorySaver saver{CudaDriver{0}};", main=""),
    "both": INCLUDE + PROGRAM.format(
        function="template <Driver D>\nvoid run(const D& driver) {\n    MemorySaver saver{driver};",
        main="int main() {\n    run(CudaDriver{0});\n    run(HostDriver{1_GiB});\n}\n"),
}


def extract(revision, folder):
    """Extracts the headers of a revision, without a second work tree."""
    packed = folder / "include.tar"
    done = subprocess.run(["git", "-C", str(ROOT), "archive", "-o", str(packed), revision, "include"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{revision} is neither a folder nor a git revision: {done.stderr.strip()}")
    shutil.unpack_archive(packed, folder)
    packed.unlink()
    return folder / "include"


def commit_of(folder):
    """Returns the commit from which a folder of headers was checked out; "unknown" for a copy."""
    commit = output_of("git", "-C", str(folder), "rev-parse", "--short=12", "HEAD")
    if commit and output_of("git", "--no-optional-locks", "-C", str(folder), "status", "--porcelain", "--", "."):
        commit += "+changes"
    return commit or "unknown"


def trees_of(wanted, work):
    """Returns {label: (folder, commit)}."""
    trees = {}
    for pair in wanted:
        label, equals, where = pair.partition("=")
        if not (label and equals and where):
            sys.exit(f"--tree {pair}: must be LABEL=WHERE")
        folder = Path(where).resolve()
        if folder.is_dir():
            trees[label] = (folder, commit_of(folder))
        else:
            (work / label).mkdir()
            trees[label] = (extract(where, work / label), output_of("git", "rev-parse", "--short=12", f"{where}^{{}}"))
        if not (trees[label][0] / "memsaver" / "memsaver.hpp").exists():
            sys.exit(f"--tree {pair}: the tree has no memsaver/memsaver.hpp")
    return trees


def knows_compiled(folder):
    return any("MEMSAVER_COMPILED" in set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
               for path in (folder / "memsaver").rglob("*.[hi]pp"))


def cpu_seconds(command):
    """Returns the CPU seconds of a process and all its children. The counter covers all child processes, so no other
    may end during the call."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)} failed:\n{done.stderr[:4000]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(options, trees, work):
    """Returns the rows: one for each compiler, form, source and tree."""
    for name, text in SOURCES.items():
        (work / f"{name}.cpp").write_text(text, encoding="utf-8")
    toolkit = ["-isystem", str(options.toolkit_include)] if options.toolkit_include else []
    forms = {"header-only": (toolkit, list(trees))}
    if options.compiled:
        forms["compiled"] = (["-DMEMSAVER_COMPILED"], [label for label in trees if knows_compiled(trees[label][0])])
    rows, obj = [], work / "out.o"
    for compiler in options.compilers.split():
        for form, (flags, labels) in forms.items():
            for source in SOURCES:
                seconds = {label: [] for label in labels}
                sizes = {}
                for _ in range(options.rounds):
                    for label in labels:
                        seconds[label].append(cpu_seconds([compiler, *FLAGS, *flags, "-I", str(trees[label][0]),
                                                           str(work / f"{source}.cpp"), "-o", str(obj)]))
                        sizes[label] = obj.stat().st_size
                for label in labels:
                    rows.append({"compiler": compiler, "form": form, "source": source, "tree": label,
                                 "cpu_seconds": round(statistics.median(seconds[label]), 3),
                                 "all_cpu_seconds": [round(each, 3) for each in seconds[label]],
                                 "object_bytes": sizes[label]})
                    print(f"  {compiler} {form} {source} {label}: {rows[-1]['cpu_seconds']:.2f} s", file=sys.stderr)
    return rows


def context_of(options, trees):
    cpu = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "compilers": {each: output_of(each, "--version").split("\n")[0] for each in options.compilers.split()},
        "cpu": cpu[1] if cpu else "unknown",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),  # other load costs caches, and so CPU seconds
        "flags": " ".join(FLAGS),
        "toolkit_headers": options.toolkit_include is not None,
        "rounds": options.rounds,
        "commits": {label: commit for label, (_, commit) in trees.items()},
    }


def table(rows, labels):
    """Returns one line for each compiled source; the ratio is the last tree's time to the first's."""
    first, last = labels[0], labels[-1]
    ratio = f"{last}/{first}" if first != last else ""
    yield f"{'CPU seconds':<32}" + "".join(f"{label:>10}" for label in labels) + f"  {ratio}".rstrip()
    found = {}
    for row in rows:
        found.setdefault((row["compiler"], row["form"], row["source"]), {})[row["tree"]] = row["cpu_seconds"]
    for key, of in found.items():
        cells = (f"{of[label]:10.2f}" if label in of else f"{'-':>10}" for label in labels)
        line = f"{' '.join(key):<32}" + "".join(cells)
        # The compiled form replaces the header-only form: if the first tree lacks it, compare with its header-only
        # form.
        base = of.get(first) or found[(key[0], "header-only", key[2])][first]
        yield line + (f"  {of[last] / base:.3f}" if ratio and last in of else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", action="append", metavar="LABEL=WHERE",
                        help="may be repeated; the first tree is the base")
    parser.add_argument("--toolkit-include", type=Path, default=Path("/usr/local/cuda/include"))
    parser.add_argument("--compilers", default="g++ clang++")
    parser.add_argument("--compiled", action="store_true", help="also measure -DMEMSAVER_COMPILED")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, metavar="FILE.json")
    options = parser.parse_args()
    if not options.toolkit_include.is_dir():
        options.toolkit_include = None
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        trees = trees_of(options.tree or [f"now={ROOT / 'include'}"], work)
        about = context_of(options, trees)
        rows = measure(options, trees, work)
    if options.output:
        options.output.write_text(json.dumps({"context": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    print("\n".join(table(rows, list(trees))))


if __name__ == "__main__":
    main()
