#!/usr/bin/env python3
"""Holds the lines that memsaver's tree promises. `check_tree.py` reports what breaks them and exits 1.

    check_tree.py [--root DIR]      check
    check_tree.py --write-headers   write cmake/headers.cmake from what lies in include/

The rules, each a function below: includes point up the list of layers; each layer has a door, a header named like
it, that shows the whole layer; adapters in interop/ stand alone, and the umbrella shows only those that need nobody
else's header; <cuda.h> is named in one file; the listed headers are those of the tree; headers are short, guarded and
introduced; nothing in the library ends the process; test cases stand where the build looks for them, each file's in a
namespace of its own.
"""
import argparse
import re
import sys
from pathlib import Path

# A layer may include the ones before it. This is the one place that says so; docs/design.md explains it.
LAYERS = ["base", "driver", "memory", "transfer", "backup", "arena", "saver", "graph", "interop", "testing"]
# Layers of which users include single headers: their door, if they have one, need not show everything.
NO_DOOR_NEEDED = {"interop"}
# For those who ask for them: they need a library that not everybody has.
OPT_IN = {"backup/verified.hpp"}
# What adapters share; they know nothing else of each other.
INTEROP_SHARED = "interop/no_throw.hpp"
CUDA_HEADER_HOME = "driver/cuda_api.hpp"
MAX_LINES = 300

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
ENDS_PROCESS = re.compile(
    r"(?<![\w.>])(?:std\s*::\s*|::\s*)?(_?exit|_Exit|quick_exit|abort|terminate|assert|__builtin_trap)\s*\(|std\s*::\s*terminate\b"
)
TEST_CASE = re.compile(r"^\s*(TEST_CASE|TEST_CASE_TEMPLATE|TEST_CASE_FIXTURE|SCENARIO)\w*\s*\(", re.MULTILINE)


def code_of(text):
    """The text without comments, strings and character literals; line breaks stay where they were."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
    return pattern.sub(lambda match: " " + "\n" * match.group(0).count("\n"), text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


class Tree:
    def __init__(self, root):
        self.root = root
        self.include = root / "include" / "memsaver"
        self.headers = {
            path.relative_to(self.include).as_posix(): path.read_text(encoding="utf-8")
            for path in sorted(self.include.rglob("*.hpp"))
        }

    def includes_of(self, name):
        """Yields (line, is_own, target): own targets are relative to include/memsaver."""
        text = self.headers[name]
        for match in INCLUDE.finditer(text):
            quote, target = match.groups()
            own = target.startswith("memsaver/")
            yield line_of(text, match.start(1)), own, target[len("memsaver/") :] if own else target, quote


def check_layers(tree):
    for name in tree.headers:
        layer = name.split("/")[0] if "/" in name else None
        if layer is None:
            continue  # an umbrella looks everywhere
        if layer not in LAYERS:
            yield f"{name}: the folder {layer}/ is not in the list of layers"
            continue
        for line, own, target, quote in tree.includes_of(name):
            if not own:
                if quote == '"':
                    yield f'{name}:{line}: "{target}" is to be written "memsaver/<layer>/..."'
                continue
            if target not in tree.headers:
                yield f"{name}:{line}: memsaver/{target} does not exist"
                continue
            if "/" not in target:
                yield f"{name}:{line}: a layer includes the umbrella {target}"
                continue
            to = target.split("/")[0]
            if to in LAYERS and LAYERS.index(to) > LAYERS.index(layer):
                yield f"{name}:{line}: {layer}/ may not include {to}/, which stands below it"


def check_doors(tree):
    for layer in LAYERS:
        members = {name for name in tree.headers if name.startswith(layer + "/")}
        door = f"{layer}/{layer}.hpp"
        if not members or layer in NO_DOOR_NEEDED:
            continue
        if door not in members:
            yield f"{layer}/: has no door, {door}"
            continue
        seen, todo = set(), [door]
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += [target for _, own, target, _ in tree.includes_of(name) if own and target in members]
        for name in sorted(members - seen - OPT_IN):
            yield f"{name}: cannot be reached from {door}"


def check_interop(tree):
    for name in tree.headers:
        for line, own, target, _ in tree.includes_of(name):
            if not own or not target.startswith("interop/") or target == INTEROP_SHARED:
                continue
            if name.startswith("interop/"):
                yield f"{name}:{line}: an adapter does not know another one, {target}"
            elif "/" in name or any(not own and re.search(r"[./]", to) for _, own, to, _ in tree.includes_of(target)):
                yield f"{name}:{line}: {target} is included only by programs that want it"


def check_cuda_header(tree):
    for name in tree.headers:
        for line, _, target, _ in tree.includes_of(name):
            if re.fullmatch(r"(cuda|cudaTypedefs|cuda_runtime\w*)\.h", target) and name != CUDA_HEADER_HOME:
                yield f"{name}:{line}: <{target}> belongs into {CUDA_HEADER_HOME} alone"


def header_list(tree):
    lines = ["# Every header of memsaver. Written by cmake/checks/check_tree.py --write-headers.", "set(MEMSAVER_HEADERS"]
    lines += [f"  include/memsaver/{name}" for name in tree.headers]
    return "\n".join(lines) + ")\n"


def check_header_list(tree):
    path = tree.root / "cmake" / "headers.cmake"
    listed = path.read_text(encoding="utf-8") if path.exists() else ""
    if listed == header_list(tree):
        return
    named = set(re.findall(r"include/memsaver/(\S+\.hpp)", listed))
    for name in sorted(set(tree.headers) - named):
        yield f"cmake/headers.cmake: {name} is missing (check_tree.py --write-headers)"
    for name in sorted(named - set(tree.headers)):
        yield f"cmake/headers.cmake: {name} does not exist (check_tree.py --write-headers)"
    if named == set(tree.headers):
        yield "cmake/headers.cmake: is not as check_tree.py --write-headers writes it"


def check_form(tree):
    for name, text in tree.headers.items():
        lines = text.splitlines()
        if len(lines) > MAX_LINES:
            yield f"{name}: {len(lines)} lines; past {MAX_LINES} there are two nouns in it"
        if not lines or not lines[0].startswith("// "):
            yield f"{name}:1: the first line says what the file is"
        if not re.search(r"^#pragma once$", text, re.MULTILINE):
            yield f"{name}: has no #pragma once"


def check_version_namespace(tree):
    version = tree.headers.get("base/version.hpp", "")
    parts = [re.search(rf"#define MEMSAVER_VERSION_{part} (\d+)", version) for part in ("MAJOR", "MINOR")]
    if not all(parts):
        yield "base/version.hpp: does not define MEMSAVER_VERSION_MAJOR and _MINOR"
        return
    wanted = "v{}_{}".format(*(part.group(1) for part in parts))
    for name, text in tree.headers.items():
        for match in re.finditer(r"namespace memsaver::inline (\w+)|namespace memsaver(?!::inline)\b[^;]*?\{", code_of(text)):
            if match.group(1) != wanted:
                yield f"{name}:{line_of(text, match.start())}: the namespace is memsaver::inline {wanted}"


def check_process_end(tree):
    for name, text in tree.headers.items():
        code = code_of(text)
        for match in ENDS_PROCESS.finditer(code):
            if not code[: match.start()].endswith("->"):
                yield f"{name}:{line_of(code, match.start())}: the library never ends the process: {match.group(0).strip()}"


def check_test_files(tree):
    """The build runs tests/**/*_test.cpp (and .cu), one ctest entry a file; a test case elsewhere would never run."""
    tests = tree.root / "tests"
    for path in sorted([*tests.rglob("*.cpp"), *tests.rglob("*.hpp"), *tests.rglob("*.cu")]):
        if not path.name.endswith(("_test.cpp", "_test.cu")) and TEST_CASE.search(code_of(path.read_text(encoding="utf-8"))):
            yield f"{path.relative_to(tree.root)}: test cases belong into a file named *_test.cpp"


def check_test_namespaces(tree):
    """Several test files are compiled as one: what tests/<folder>/<stem>.cpp has stands in <folder>_<stem>."""
    tests = tree.root / "tests"
    for path in sorted(tests.rglob("*_test.cpp")):
        code = code_of(path.read_text(encoding="utf-8"))
        first = TEST_CASE.search(code)
        name = "_".join(path.relative_to(tests).with_suffix("").parts)
        if first and not re.search(rf"^namespace {name} {{", code[: first.start()], re.MULTILINE):
            yield f"{path.relative_to(tree.root)}: its test cases belong into the namespace {name}"


RULES = [
    check_layers,
    check_doors,
    check_interop,
    check_cuda_header,
    check_header_list,
    check_form,
    check_version_namespace,
    check_process_end,
    check_test_files,
    check_test_namespaces,
]


def violations(root):
    tree = Tree(Path(root))
    return [message for rule in RULES for message in rule(tree)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--write-headers", action="store_true")
    arguments = parser.parse_args()
    if arguments.write_headers:
        (arguments.root / "cmake" / "headers.cmake").write_text(header_list(Tree(arguments.root)), encoding="utf-8")
        return 0
    found = violations(arguments.root)
    for message in found:
        print(message)
    print(f"{len(found)} violations of {len(RULES)} rules" if found else f"{len(RULES)} rules hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
