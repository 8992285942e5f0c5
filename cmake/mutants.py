#!/usr/bin/env python3
"""Measures the strength of the tests: changes the core in one place at a time and checks whether a test fails.

    cmake/mutants.py --work DIR --output FILE.json [--count 100] [--seed N] [--time-limit SECONDS] [--resume]
    cmake/mutants.py --work DIR --output FILE.json --retry
    cmake/mutants.py --self-test

mutations.py defines the mutants; places are drawn from the files of --files. Everything happens in a copy of the tree,
DIR/tree (tracked files, and untracked files that git does not ignore), built in DIR/build. The host's tests of the copy
must pass before anything is changed. For each mutant, tests run in the order of --tests (a regular expression; repeat
the option for later groups) until one fails; within each group, tests of the changed file's layer run first, then the
quick ones. A test that takes ten times as long as before, and at least --least seconds, counts as hanging, which is a
failure. A mutant that does not compile says nothing about tests and is replaced by another one. FILE.json is written
after each mutant, and --resume continues with it. Ends with the list of survivors. --retry tries FILE.json's survivors
once more, in the current tree, after tests were added, or with tests that were left out before.
"""
import argparse
import collections
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import mutations

ROOT = Path(__file__).resolve().parents[1]
FILES = [f"include/memsaver/{layer}/**/*.[hi]pp" for layer in "core driver heap backup arena saver graph".split()]
GPU_ONLY = re.compile(r"/(?:cuda|nvcomp)_")  # no host test executes these files
OPTIONS = ["-DMEMSAVER_BUILD_EXAMPLES=OFF", "-DMEMSAVER_TEST_GPU_PROGRAMS=OFF", "-DMEMSAVER_TEST_COMPILATION=OFF"]
Test = collections.namedtuple("Test", "name command properties")


# --- Copy, build and tests -------------------------------------------------------------------------------------------
def copy_tree(root, tree):
    """Makes the copy equal to the tree; leaves equal files untouched, so that they are not rebuilt."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-coz", "--exclude-standard"], capture_output=True, check=True)
    names = {name for name in os.fsdecode(listed.stdout).split("\0") if name and (root / name).is_file()}
    for path in [path for path in tree.rglob("*") if path.is_file() and path.relative_to(tree).as_posix() not in names]:
        path.unlink()
    for name in names:
        if not (tree / name).exists() or (tree / name).read_bytes() != (root / name).read_bytes():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, tree / name)  # gets the current time: an older one would not be built


def build(options):
    """Returns the build's output if it failed."""
    command = ["cmake", "--build", str(options.work / "build"), "--parallel", str(options.jobs)]
    command += ["--target", *options.target] if options.target else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          start_new_session=True) as process:
        try:
            said = process.communicate()[0]
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # with its compilers
            raise
    return said[-4000:] or "failed" if process.returncode != 0 else None


def groups_of(options):
    """Returns a list of tests for each of --tests."""
    groups, seen = [], set()
    for pattern in options.tests:
        command = ["ctest", "--test-dir", str(options.work / "build"), "-L", "^host$", "-LE", "slow", "-R", pattern]
        command += [*(["-E", options.exclude] if options.exclude else []), "--show-only=json-v1"]
        listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["tests"]
        groups.append([Test(test["name"], test["command"], {each["name"]: each["value"] for each in test["properties"]})
                       for test in listed if "command" in test and test["name"] not in seen])
        seen |= {test.name for test in groups[-1]}
    if not seen:
        sys.exit("no host test matches --tests")
    return groups


def easy_to_kill():
    """Marks the process for the out-of-memory killer, because a mutant may use up all memory."""
    Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def start(test, folder):
    command = list(test.command)
    if any(each.startswith("--source-file=") for each in command):
        command.append("--abort-after=1")  # doctest's: the first failure is enough
    environment = dict(each.split("=", 1) for each in test.properties.get("ENVIRONMENT", []))
    log = tempfile.TemporaryFile(dir=folder)  # not a pipe: children that outlive a test would keep it open
    try:
        process = subprocess.Popen(command, cwd=test.properties.get("WORKING_DIRECTORY"), env={**os.environ, **environment},
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                                   preexec_fn=easy_to_kill)
    except OSError:
        process = subprocess.Popen(["false"], start_new_session=True)
    return process, log, time.monotonic()


def end(process, log):
    try:
        os.killpg(process.pid, signal.SIGKILL)  # also the test's children
    except ProcessLookupError:
        pass
    process.wait()
    log.close()


def verdict(test, code, log):
    """Returns why a finished test failed, or nothing if it passed."""
    log.seek(0)
    said = log.read().decode(errors="replace")
    if code == test.properties.get("SKIP_RETURN_CODE"):
        return None
    if any(re.search(each, said) for each in test.properties.get("FAIL_REGULAR_EXPRESSION", [])):
        return "printed a forbidden text"
    if (code == 0) == test.properties.get("WILL_FAIL", False):
        return f"signal {-code}" if code < 0 else f"exit {code}"
    return None


def run_tests(tests, options, before):
    """Runs the tests in this order until one fails. Returns [(its name, why)], and the seconds of those that passed.
    If `before` has no seconds, runs all."""
    waiting, running, failed, seconds = collections.deque(tests), [], [], {}
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        try:
            while (waiting or running) and not (failed and before):
                while waiting and len(running) < options.jobs:
                    test = waiting.popleft()
                    running.append((test, *start(test, folder)))
                time.sleep(0.005)
                for each in list(running):
                    test, process, log, begun = each
                    took, code = time.monotonic() - begun, process.poll()
                    late = took > (max(options.least, 10 * before[test.name]) if before else options.timeout)
                    if code is None and not (late or took > options.timeout):
                        continue
                    why = "hangs" if code is None else verdict(test, code, log)
                    running.remove(each)
                    end(process, log)
                    if why:
                        failed.append((test.name, why))
                    else:
                        seconds[test.name] = took
        finally:
            for _, process, log, _ in running:
                end(process, log)
    return failed, seconds


# --- Mutants ---------------------------------------------------------------------------------------------------------
def sources_of(options, tree):
    names = sorted({path.relative_to(tree).as_posix() for glob in options.files for path in tree.glob(glob)
                    if not GPU_ONLY.search(str(path))})
    if not names:
        sys.exit(f"no file matches {' or '.join(options.files)}")
    return {name: (tree / name).read_text(encoding="utf-8") for name in names}


def prepare(options, tree):
    """Makes the copy equal to the tree or, when resuming, restores its last changed file."""
    changed = options.work / "changed.json"
    if changed.exists():  # the last run was interrupted
        last = json.loads(changed.read_text(encoding="utf-8"))
        (tree / last["file"]).write_text(last["text"], encoding="utf-8")
        changed.unlink()
    known = (options.resume or options.retry) and options.output.exists()
    if not known or options.retry:
        tree.mkdir(parents=True, exist_ok=True)
        copy_tree(options.root, tree)
    return json.loads(options.output.read_text(encoding="utf-8")) if known else None


def ordered(groups, site, before):
    """Returns the tests, those likely to detect this mutant soon first."""
    layer = Path(site.file).parent.name + "."
    return [test for group in groups
            for test in sorted(group, key=lambda test: (not test.name.startswith(layer), before[test.name]))]


def try_one(site, text, tree, tests, options, before):
    """Changes, builds, tests, restores. Returns the row's verdict."""
    changed = options.work / "changed.json"
    changed.write_text(json.dumps({"file": site.file, "text": text}), encoding="utf-8")
    try:
        (tree / site.file).write_text(mutations.apply(text, site), encoding="utf-8")
        if build(options):
            return {"result": "does not compile"}
        failed, _ = run_tests(tests, options, before)
    finally:
        (tree / site.file).write_text(text, encoding="utf-8")
        changed.unlink()
    return {"result": "killed", "test": failed[0][0], "why": failed[0][1]} if failed else {"result": "SURVIVED"}


def found_again(row, sites, sources):
    """Finds the same change of the same line, which may have moved a little; None if the line no longer exists."""
    same = [site for site in sites if site.file == row["file"] and mutations.shown(site) == row["change"] and
            abs(site.line - row["line"]) <= 20 and sources[site.file].split("\n")[site.line - 1].strip() == row["source"]]
    return min(same, key=lambda site: abs(site.line - row["line"]), default=None)


def summary(rows):
    results = collections.Counter("hangs" if row.get("why") == "hangs" else row["result"] for row in rows)
    tried = len(rows) - results["does not compile"] - results["no longer there"]
    killed = tried - results["SURVIVED"]
    yield (f"{tried} mutants: {killed} killed ({100 * killed / max(tried, 1):.0f} %, {results['hangs']} of them because a test hung), "
           f"{results['SURVIVED']} survived; {results['does not compile']} others did not compile")
    for row in rows:
        if row["result"] == "SURVIVED":
            yield f"  {row['file']}:{row['line']}: {row['change']}\n      {row['source']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="a folder for the copy and its build; may exist")
    parser.add_argument("--output", type=Path, metavar="FILE.json")
    parser.add_argument("--resume", action="store_true", help="continue FILE.json, in the unchanged copy")
    parser.add_argument("--retry", action="store_true", help="retry the survivors of FILE.json in the current tree")
    parser.add_argument("--count", type=int, default=100, help="number of mutants that compile")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--time-limit", type=float, default=float("inf"), metavar="SECONDS")
    parser.add_argument("--files", action="append", metavar="GLOB", help=f"may be repeated; default: {FILES[0]} and so on")
    parser.add_argument("--tests", action="append", metavar="REGEX", help="as for ctest -R; if repeated, later ones run later")
    parser.add_argument("--exclude", metavar="REGEX", help="as for ctest -E")
    parser.add_argument("--timeout", type=float, default=600, help="maximum seconds of a test")
    parser.add_argument("--least", type=float, default=10, help="minimum time limit of a test, in seconds")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--preset", default="test")
    parser.add_argument("--configure", action="append", metavar="OPTION", help=f"additional to {' '.join(OPTIONS)}")
    parser.add_argument("--target", action="append", help="build only these")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to copy")
    parser.add_argument("--self-test", action="store_true", help="test finding and applying changes; builds nothing")
    options = parser.parse_args()
    if options.self_test:
        return mutations.self_test(sorted((ROOT / "include").rglob("*.[hi]pp")))
    if not (options.work and options.output):
        parser.error("--work and --output are required")
    started = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the file is restored and tests are ended
    options.work = options.work.resolve()
    options.files, options.tests = options.files or FILES, options.tests or ["."]
    tree = options.work / "tree"
    state = prepare(options, tree)
    sources = sources_of(options, tree)
    digest = hashlib.sha256(json.dumps(sources).encode()).hexdigest()[:16]
    if state and options.retry:
        state["sources"] = digest
    if state and (state["sources"] != digest or options.seed not in (None, state["seed"])):
        sys.exit(f"{options.output} was made from other files or with seed {state['seed']}")
    state = state or {"seed": options.seed or random.randrange(1, 1 << 31), "sources": digest, "seconds": {}, "rows": []}
    sites = [site for name, text in sources.items() for site in mutations.sites_of(name, text)]
    random.Random(state["seed"]).shuffle(sites)
    print(f"seed {state['seed']}: {len(sites)} possible changes in {len(sources)} files", flush=True)

    configure = ["cmake", "--preset", options.preset, "-B", str(options.work / "build"), *OPTIONS, *(options.configure or [])]
    subprocess.run(configure, cwd=tree, stdout=subprocess.DEVNULL, check=True)
    if said := build(options):
        sys.exit(f"{said}\nthe unchanged tree does not build")
    groups = groups_of(options)
    tests = [test for group in groups for test in group]
    if {test.name for test in tests} - state["seconds"].keys():
        failed, state["seconds"] = run_tests(tests, options, None)
        if failed:
            sys.exit(f"tests that fail in the unchanged tree: {', '.join(' '.join(each) for each in failed)}")
    before = state["seconds"]
    print(f"{len(tests)} tests, {sum(before[test.name] for test in tests):.0f} s in total", flush=True)

    rows = state["rows"]
    for row in [row for row in rows if options.retry and row["result"] == "SURVIVED"]:
        site = found_again(row, sites, sources)
        row |= try_one(site, sources[site.file], tree, ordered(groups, site, before), options, before) if site else {
            "result": "no longer there"}
        options.output.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
        print(f"{row['file']}:{row['line']}  {row['change']}  {row['result']} {row.get('test', '')}", flush=True)
    tried = {(row["file"], row["line"], row["change"], row["source"]) for row in rows}
    for site in [] if options.retry else sites:
        valid = sum(row["result"] != "does not compile" for row in rows)
        if valid >= options.count or time.monotonic() - started > options.time_limit:
            break
        begun = time.monotonic()
        row = {"file": site.file, "line": site.line, "change": mutations.shown(site),
               "source": sources[site.file].split("\n")[site.line - 1].strip()}
        if tuple(row.values()) in tried:
            continue
        row |= try_one(site, sources[site.file], tree, ordered(groups, site, before), options, before)
        rows.append({**row, "seconds": round(time.monotonic() - begun, 1)})
        options.output.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
        by = f" by {row['test']} ({row['why']})" if "test" in row else ""
        print(f"{len(rows):4} {site.file}:{site.line}  {row['change']}  {row['result']}{by}  {rows[-1]['seconds']} s", flush=True)
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    sys.exit(main())
