#!/usr/bin/env python3
"""Measures what including and using memsaver costs a program: CPU seconds of the compiler, and bytes of its object file.

    bench/weight.py --check                       compare bytes with bench/weight.json: a step of .ci/run
    bench/weight.py --write [--because 0031]      write bench/weight.json; a decision explains numbers that rise
    bench/weight.py [--all] [--rounds 3] [--baseline DIR] [--output bench/results/<date>-weight.json]

Each program below is compiled with -O2 to an object file, header-only and with -DMEMSAVER_COMPILED. `including` is one
line, `plain` a program with a region and an arena that pauses and resumes, `library` all definitions; the others are
`plain` with one feature more, and are measured only with --all. Bytes are those of the object's sections: text, and
tables (eh_frame, gcc_except_table, rodata, relocated read-only data). Seconds, user and system, are the median of the
rounds. With --baseline, a folder of another checkout or a revision of this one, rounds alternate between the trees, and
ratios are printed. Bytes depend on the compilers' versions: --check compares only those in the table.
"""
import argparse
import collections
import concurrent.futures
import datetime
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from run import ROOT, output_of

TABLE = ROOT / "bench" / "weight.json"
DECISIONS = ROOT / "docs" / "decisions"
FLAGS = ["-std=c++20", "-O2", "-c"]
FORMS = {"header-only": [], "compiled": ["-DMEMSAVER_COMPILED"]}
TABLES = re.compile(r"\.(eh_frame|gcc_except_table|rodata|data\.rel\.ro)\b")

PLAIN = """
using namespace memsaver;
void work(StreamRef stream, AnyDriver other);
void work([[maybe_unused]] StreamRef stream, [[maybe_unused]] AnyDriver other) {{
    MemorySaver saver{{CudaDriver{{0}}{options}}};
    Region region = saver.region("kv_cache");
    void* kv = region.allocate(64_MiB);
    Arena weights = saver.arena("weights", HostBackup{{{storage}}});
    void* block = weights.allocate(64_MiB);
    {feature}
    saver.pause({{"kv_cache", "weights"}});
    saver.resume({{"kv_cache", "weights"}});
    weights.deallocate(block);
    saver.deallocate(kv);
}}
"""
Program = collections.namedtuple("Program", "feature options storage headers defines", defaults=("", "", "", (), ()))
FEATURES = {
    "use": Program('{ Use use = saver.use({"weights", "kv_cache"}); use.until(stream); } saver.reclaim(1_MiB);'),
    "exchange": Program('saver.exchange("weights", "kv_cache");'),
    "resume_async": Program('saver.pause("weights"); Arrival coming = saver.resume_async("weights"); coming.before(stream, block, 1_MiB);'
                            " Gate gate = saver.gate(block, 1_MiB); gate.before(stream); coming.wait();"),
    "save": Program('Arrival saved = saver.save("weights"); saved.wait();'),
    "elastic": Program("Elastic range = weights.elastic(1_GiB); range.commit(0, 64_MiB); range.release(0, 64_MiB);"),
    "workspaces": Program('WorkspacePool pool{weights}; pool.get("moe", 1_MiB);'),
    "graph": Program('Graph graph = capture(saver, "graph", stream, [] {}); graph.launch(stream);'),
    "write_backup": Program('saver.pause("weights"); saver.write_backup(block, &saver, 8); saver.backup_view(block, 8);'),
    "FileBackup": Program('saver.arena("cold", FileBackup{.directory = "/var/tmp"}).allocate(1_MiB);'),
    "FileSource": Program('Arena model = saver.arena("model", FileSource{}); model.load(model.allocate(1_MiB), 1_MiB, "file");'),
    "PeerBackup": Program('saver.arena("parked", PeerBackup{std::move(other)}).allocate(1_MiB);'),
    "Compressed": Program('saver.arena("packed", Compressed<HostBackup>{}).allocate(1_MiB);', headers=("memsaver/backup/compressed.hpp",)),
    "Verified": Program('saver.arena("checked", Verified<HostBackup>{}).allocate(1_MiB);', headers=("memsaver/backup/verified.hpp",)),
    "registrations": Program("Registrations registered{saver, {}};", headers=("memsaver/saver/registrations.hpp",)),
    "hooks": Program("Hook hook = saver.before_pause([](PauseEvent&) {});"),
    "switched_off": Program(options=", {.enabled = stream != nullptr}"),
    "evicting": Program(options=", {.evict_for_allocations = stream != nullptr}"),
    "pageable": Program(storage=".storage = stream != nullptr ? Storage::pageable : Storage::pinned"),
    "usage": Program("std::cout << saver.usage();", headers=("iostream",)),
    "HostDriver": Program("MemorySaver host{HostDriver{}};"),
}
USUAL = ("including", "plain")
# Measured in one form only.
ONLY = {"library": "compiled"}


def source_of(name):
    """Returns the text of a program."""
    if name == "library":
        return "#include <memsaver/impl.hpp>\n"
    program = FEATURES.get(name, Program())
    headers = "".join(f"#include <{header}>\n" for header in ("memsaver/memsaver.hpp", *program.headers))
    if name == "including":
        return headers
    return headers + PLAIN.format(options=program.options, storage=program.storage, feature=program.feature)


def bytes_of(obj):
    """Returns (bytes of text, bytes of tables) of an object file."""
    text = tables = 0
    for line in subprocess.run(["size", "-A", str(obj)], capture_output=True, text=True, check=True).stdout.splitlines():
        words = line.split()
        if len(words) == 3 and words[1].isdigit():
            text += int(words[1]) if words[0].startswith(".text") else 0
            tables += int(words[1]) if TABLES.match(words[0]) else 0
    return text, tables


def compile_one(include, compiler, form, name, folder):
    """Returns (CPU seconds, text, tables), or the compiler's message."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        source, obj = Path(own) / f"{name}.cpp", Path(own) / "out.o"
        source.write_text(source_of(name), encoding="utf-8")
        (Path(own) / "include").symlink_to(include.resolve())  # tables contain the names of files: no checkout's own
        command = [compiler, *FLAGS, *FORMS[form], "-I", "include", source.name, "-o", obj.name]
        with (Path(own) / "log").open("w+", encoding="utf-8") as log:
            child = subprocess.Popen(command, cwd=own, stdout=log, stderr=log)
            _, status, used = os.wait4(child.pid, 0)  # with the processes that it waited for
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode != 0:
                log.seek(0)
                return f"{shlex.join(command)}\n{log.read()[:3000]}"
        return (used.ru_utime + used.ru_stime, *bytes_of(obj))


def code_lines(include):
    """Returns {folder of the library: lines that are neither blank nor only a comment}."""
    lines = collections.Counter()
    for path in sorted((include / "memsaver").rglob("*.[hi]pp")):
        folder = path.relative_to(include / "memsaver").parts[0] if path.parent.name != "memsaver" else "."
        lines[folder] += sum(1 for line in path.read_text(encoding="utf-8").splitlines()
                             if line.strip() and not line.strip().startswith("//"))
    return dict(lines)


def tree_of(where, work):
    """Returns the headers and the commit of a checkout, of a folder of headers or of a revision."""
    folder = Path(where)
    if folder.is_dir():
        folder = (folder / "include" if (folder / "include").is_dir() else folder).resolve()
        commit = output_of("git", "-C", str(folder), "rev-parse", "--short=12", "HEAD")
        changed = output_of("git", "--no-optional-locks", "-C", str(folder), "status", "--porcelain", "--", ".")
        return folder, (commit or "unknown") + ("+changes" if commit and changed else "")
    packed = work / "include.tar"
    done = subprocess.run(["git", "-C", str(ROOT), "archive", "-o", str(packed), where, "include"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{where} is neither a folder nor a revision: {done.stderr.strip()}")
    shutil.unpack_archive(packed, work / "baseline")
    return work / "baseline" / "include", output_of("git", "rev-parse", "--short=12", f"{where}^{{}}")


def version_of(compiler):
    return output_of(compiler, "--version").split("\n")[0]


def cases_of(options):
    """Yields (compiler, form, name)."""
    names = options.only.split(",") if options.only else [*USUAL, *(("library", *FEATURES) if options.all else ())]
    for compiler in options.compilers.split():
        for form in options.forms.split():
            for name in names:
                if ONLY.get(name, form) == form:
                    yield compiler, form, name


def measure(options, trees, work):
    """Returns {(compiler, form, name): {label: (seconds, text, tables) or a message}}. Without seconds, several at a time."""
    cases, found = list(cases_of(options)), {}
    if options.check or options.write or options.bytes:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = {(case, label): pool.submit(compile_one, include, *case, work)
                    for case in cases for label, (include, _) in trees.items()}
            for (case, label), job in jobs.items():
                found.setdefault(case, {})[label] = job.result()
        return found
    for case in cases:
        runs = {label: [] for label in trees}
        for _ in range(options.rounds):
            for label, (include, _) in trees.items():
                runs[label].append(compile_one(include, *case, work))
        found[case] = {label: next((run for run in all_runs if isinstance(run, str)), None)
                       or (statistics.median(run[0] for run in all_runs), *all_runs[0][1:]) for label, all_runs in runs.items()}
        print(" ".join(case), {label: each if isinstance(each, tuple) else "fails" for label, each in found[case].items()},
              file=sys.stderr, flush=True)
    return found


def report(found, trees, seconds):
    """Prints one line for each case; with a baseline, the ratios to it."""
    head = f"{'':<36}{'CPU s':>7}{'text':>10}{'tables':>9}{'more than plain':>17}"
    print(head + (f"{'ratios: CPU':>14}{'bytes':>7}" if "baseline" in trees else ""))
    for (compiler, form, name), of in found.items():
        now = of["now"]
        plain = found.get((compiler, form, "plain"), {}).get("now")
        more = f"{now[1] - plain[1]:>+17,}" if plain and name in FEATURES else " " * 17
        line = f"{compiler + ' ' + form + ' ' + name:<36}{now[0]:7.2f}{now[1]:10,}{now[2]:9,}{more}"
        before = of.get("baseline")
        if isinstance(before, tuple):
            cpu = f"{now[0] / before[0]:14.3f}" if seconds else " " * 14
            line += cpu + (f"{(now[1] + now[2]) / (before[1] + before[2]):7.3f}" if before[1] + before[2] else "")
        elif before is not None:
            line += "   does not compile in the baseline"
        print(line)
    for label, (include, commit) in trees.items():
        lines = code_lines(include)
        print(f"{label} ({commit}): {sum(lines.values()):,} lines of code: "
              + ", ".join(f"{folder} {count:,}" for folder, count in lines.items()))


def table_rows(table):
    return {(row["compiler"], row["form"], row["program"]): row for row in table["rows"]}


def check(found, versions):
    """Compares with the table; returns the number of numbers that rose."""
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    rows, rose, fell = table_rows(table), 0, 0
    for compiler, version in versions.items():
        if table["compilers"].get(compiler) != version:
            print(f"{compiler} is {version}; the table was made by {table['compilers'].get(compiler)}: not compared")
    for case, of in found.items():
        if table["compilers"].get(case[0]) != versions[case[0]] or case not in rows:
            continue
        for what, number in zip(("text", "tables"), of["now"][1:]):
            limit = rows[case][what]
            if number != limit:
                print(f"{' '.join(case)}: {number:,} bytes of {what}, {number - limit:+,}")
            rose += number > limit
            fell += number < limit
    if rose:
        print("Bytes rose. Find out why; if they must, bench/weight.py --write --because NNNN names the decision that says so.")
    elif fell:
        print("Bytes fell. Keep it: bench/weight.py --write")
    else:
        print("As in the table" if found else "Nothing compared")
    return rose


def write(found, versions, because):
    """Writes the table. Numbers rise only with a decision, which is recorded beside them."""
    table = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {"rows": []}
    rows = table_rows(table)
    same = table.get("compilers", versions) == versions
    if because and not list(DECISIONS.glob(f"{because}-*.md")):
        sys.exit(f"There is no decision {because}")
    for case, of in found.items():
        text, tables = of["now"][1:]
        before = rows.get(case)
        row = dict(zip(("compiler", "form", "program"), case), text=text, tables=tables)
        if before and same and (text > before["text"] or tables > before["tables"]):
            if not because:
                sys.exit(f"{' '.join(case)}: {text:,} and {tables:,} bytes, more than {before['text']:,} and "
                         f"{before['tables']:,}: --because NNNN names the decision that says why")
            row["because"] = because
        elif before and "because" in before:
            row["because"] = before["because"]
        rows[case] = row
    lines = ",\n  ".join(json.dumps(row) for row in rows.values())
    TABLE.write_text(f'{{\n "compilers": {json.dumps(versions)},\n "rows": [\n  {lines}\n ]\n}}\n', encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true")
    what.add_argument("--write", action="store_true")
    what.add_argument("--bytes", action="store_true", help="compile several at a time: seconds are not comparable")
    parser.add_argument("--because", metavar="NNNN", help="the decision that explains numbers that rise")
    parser.add_argument("--all", action="store_true", help="also the library, and one program for each feature")
    parser.add_argument("--only", help="comma-separated programs: " + ", ".join((*USUAL, "library", *FEATURES)))
    parser.add_argument("--compilers", default="g++ clang++")
    parser.add_argument("--forms", default=" ".join(FORMS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--baseline", metavar="DIR|REVISION")
    parser.add_argument("--output", type=Path, metavar="FILE.json")
    options = parser.parse_args()
    versions = {compiler: version_of(compiler) for compiler in options.compilers.split()}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        trees = {"now": tree_of(ROOT, work)}
        if options.baseline:
            trees = {"baseline": tree_of(options.baseline, work), **trees}
        found = measure(options, trees, work)
        failures = [of["now"] for of in found.values() if isinstance(of["now"], str)]
        if failures:
            sys.exit("\n".join(failures))
        if options.check:
            return 1 if check(found, versions) else 0
        if options.write:
            write(found, versions, options.because)
        report(found, trees, seconds=not (options.write or options.bytes))
        if options.output:
            cpu = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
            about = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "compilers": versions,
                     "cpu": cpu[1] if cpu else "unknown", "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2),
                     "flags": " ".join(FLAGS), "rounds": options.rounds,
                     "commits": {label: commit for label, (_, commit) in trees.items()},
                     "code_lines": {label: code_lines(include) for label, (include, _) in trees.items()}}
            rows = [{"compiler": compiler, "form": form, "program": name, "tree": label, "cpu_seconds": round(run[0], 3),
                     "text": run[1], "tables": run[2]}
                    for (compiler, form, name), of in found.items() for label, run in of.items() if isinstance(run, tuple)]
            options.output.write_text(json.dumps({"context": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
