#!/usr/bin/env python3
"""Checks structural rules of the source tree. Reports violations and exits with 1 if there are any.

Each rule is a function below, which says what it wants. A definition in an .ipp file that lacks MEMSAVER_INLINE is found
by bench/weight.py: a line that only includes the library compiles to no code.
"""
import re
import sys
from pathlib import Path

# A layer may include the ones before it. This is the single definition; include/memsaver/README.md explains it.
LAYERS = ["core", "driver", "heap", "backup", "arena", "saver", "graph", "host", "share", "interop", "testing"]
# Layers that may include only some of the layers before them.
KNOWS = {"host": {"core", "driver"}, "share": {"core", "driver", "heap", "backup", "arena", "saver"}}
# Opt-in headers: they need a library that not everybody has, to compile or to run; and their shared helpers.
OPT_IN = {f"backup/{name}.hpp" for name in ("verified", "damaged", "compressed", "codec", "coded_store", "host_codec", "nvcomp_abi", "nvcomp_codec")}
# Macros of other libraries are removed between the two: in every header that a program includes.
MACROS_OFF, MACROS_ON = "core/macros_off.hpp", "core/macros_on.hpp"
INCLUDED_BY_PROGRAMS = {"memsaver.hpp", "impl.hpp", "fwd.hpp", "backup/verified.hpp", "backup/compressed.hpp", "share/share.hpp"}
# Headers that cost 50 ms or more per unit: the umbrella's headers that may include them, because their types are part of
# the interface. Others include them in definitions, or use core/function_ref.hpp and core/time_limit.hpp.
SLOW_HEADERS = dict.fromkeys(
    ["algorithm", "condition_variable", "deque", "fstream", "future", "iomanip", "iostream", "list", "map", "mutex", "ostream",
     "ranges", "regex", "set", "shared_mutex", "span", "sstream", "thread", "unordered_map"], ()) | {
    "functional": {"backup/executor.hpp", "backup/policy.hpp", "backup/stored_slot.hpp", "backup/ticket.hpp", "core/event.hpp",
                   "host/host_driver.hpp", "saver/elastic.hpp", "saver/hooks.hpp", "saver/memory_saver.hpp",
                   "saver/options.hpp", "saver/registrations.hpp", "saver/saver_core.hpp"},
    "chrono": {"backup/kernel_copies.hpp", "core/order.hpp", "core/report.hpp", "core/time_limit.hpp", "core/usage.hpp"},
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"][^>"]+[>"])', re.MULTILINE)
ENDS_PROCESS = re.compile(
    r"(?<![\w.>])(?:std\s*::\s*|::\s*)?(_?exit|_Exit|quick_exit|abort|terminate|assert|__builtin_trap)\s*\(|std\s*::\s*terminate\b"
)
TEST_CASE = re.compile(r"^\s*(TEST_CASE|TEST_CASE_TEMPLATE|TEST_CASE_FIXTURE|SCENARIO)\w*\s*\(", re.MULTILINE)


def code_of(text):
    """Returns the text without comments, strings and character literals; keeps line breaks."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
    return pattern.sub(lambda match: " " + "\n" * match.group(0).count("\n"), text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


class Tree:
    def __init__(self, root):
        self.root = root
        self.include = root / "include" / "memsaver"
        self.files = {  # .hpp and .ipp, and the C interface's .h
            path.relative_to(self.include).as_posix(): path.read_text(encoding="utf-8")
            for path in sorted([*self.include.rglob("*.hpp"), *self.include.rglob("*.ipp"), *self.include.rglob("*.h")])
        }
        self.headers = {name: text for name, text in self.files.items() if name.endswith(".hpp")}

    def includes_of(self, name, own):
        """Yields (line, target): own ones relative to include/memsaver, others with their brackets or quotes."""
        text = self.files[name]
        for match in INCLUDE.finditer(text):
            if (match[1][1:10] == "memsaver/") == own:
                yield line_of(text, match.start(1)), match[1][10:-1] if own else match[1]

    def reached_from(self, start, among):
        """Returns the names that a file includes, directly or indirectly through others of `among`, and its own."""
        seen, todo = set(), [start]
        while todo:
            name = todo.pop()
            if name not in seen and name in among:
                seen.add(name)
                todo += [target for _, target in self.includes_of(name, own=True)]
        return seen


def check_layers(tree):
    """Includes point up the list of layers."""
    for name in tree.files:
        layer, slash, _ = name.partition("/")
        if not slash:
            continue  # an umbrella includes every layer
        if layer not in LAYERS:
            yield f"{name}: the folder {layer}/ is not in the list of layers"
            continue
        for line, target in tree.includes_of(name, own=False):
            if target[0] == '"':
                yield f'{name}:{line}: {target} must be included as "memsaver/<layer>/..."'
        known = KNOWS.get(layer, set(LAYERS[: LAYERS.index(layer)])) | {layer}
        for line, target in tree.includes_of(name, own=True):
            to = target.split("/")[0]
            if target not in tree.files:
                yield f"{name}:{line}: memsaver/{target} does not exist"
            elif "/" not in target and target != "fwd.hpp":
                yield f"{name}:{line}: a layer must not include the umbrella {target}"
            elif to in LAYERS and to not in known:
                yield f"{name}:{line}: {layer}/ may not include {to}/"


def check_doors(tree):
    """Each layer has a door: a header with its name that includes the whole layer."""
    for layer in LAYERS:
        members = {name for name in tree.files if name.startswith(layer + "/")}
        door = f"{layer}/{layer}.hpp"
        if not members or layer == "interop": # adapters are included one by one
            continue
        if door not in members:
            yield f"{layer}/: has no door, {door}"
            continue
        for name in sorted((members & set(tree.headers)) - tree.reached_from(door, members) - OPT_IN - {f"{layer}/impl.hpp"}):
            yield f"{name}: is not included by {door}, directly or indirectly"


def check_interop(tree):
    """Adapters are independent of each other. The umbrella includes only those that need no third-party header."""
    for name in tree.files:
        for line, target in tree.includes_of(name, own=True):
            if not target.startswith("interop/") or target == "interop/no_throw.hpp" or name == "interop/impl.hpp":
                continue
            if target[:-3] == name[:-3]:
                continue  # a header and its definitions
            if name.startswith("interop/"):
                yield f"{name}:{line}: an adapter may not include another one, {target}"
            elif "/" in name or any(re.search(r"[./]", to) for _, to in tree.includes_of(target, own=False)):
                yield f"{name}:{line}: {target} is opt-in; the library may not include it"


def check_umbrella_is_quick(tree):
    """The declarations that the umbrella includes compile quickly. The compiled form does not read .ipp files."""
    for name in sorted(tree.reached_from("memsaver.hpp", tree.headers)):
        for line, target in tree.includes_of(name, own=False):
            if name not in SLOW_HEADERS.get(target[1:-1], [name]):
                yield f"{name}:{line}: {target} is slow and included by memsaver.hpp; include it in an .ipp file, or do without"


def check_macros(tree):
    """The headers that programs include begin and end with the pair of files that removes other libraries' macros."""
    if MACROS_OFF not in tree.headers:
        return  # nothing to remove
    off, on = tree.headers[MACROS_OFF], tree.headers.get(MACROS_ON, "")
    removed = re.findall(r'^#pragma push_macro\("(\w+)"\)$', off, re.M)
    if removed != re.findall(r'^#pragma pop_macro\("(\w+)"\)$', on, re.M)[::-1]:
        yield f"{MACROS_ON}: must restore what {MACROS_OFF} removes, in reverse order"
    if removed != re.findall(r"^#undef (\w+)$", off, re.M):
        yield f"{MACROS_OFF}: must undefine each macro that it keeps"
    wanted = INCLUDED_BY_PROGRAMS | {f"{layer}/{layer}.hpp" for layer in LAYERS}
    for name in sorted(tree.headers):
        own = [target for _, target in tree.includes_of(name, own=True) if target != "core/form.hpp"]
        begins, ends = own[:1] == [MACROS_OFF], own[-1:] == [MACROS_ON]
        if name == "interop/impl.hpp" or not (begins or ends or name in wanted or name.startswith("interop/")):
            continue
        if not begins or not ends or re.search(rf'^#include "memsaver/{MACROS_ON}"\n(#endif\n)?\Z', tree.headers[name], re.M) is None:
            yield f"{name}: must begin with {MACROS_OFF} and end with {MACROS_ON}"


def check_version_namespace(tree):
    """Each namespace is of the version."""
    wanted = "v{}_{}".format(*re.findall(r"#define MEMSAVER_VERSION_M\w+ (\d+)", tree.headers["core/version.hpp"]))
    for name, text in tree.files.items():
        for match in re.finditer(r"namespace memsaver::inline (\w+)|namespace memsaver(?!::inline)\b[^;]*?\{", code_of(text)):
            if match.group(1) != wanted:
                yield f"{name}:{line_of(text, match.start())}: the namespace must be memsaver::inline {wanted}"


def check_process_end(tree):
    """Nothing in the library ends the process."""
    for name, text in tree.files.items():
        code = code_of(text)
        for match in ENDS_PROCESS.finditer(code):
            yield f"{name}:{line_of(code, match.start())}: the library must not end the process: {match.group(0).strip()}"


def check_tests(tree):
    """The build runs tests/**/*_test.cpp (and .cu), one ctest entry per file; a test case elsewhere would never run. The
    files of a folder form one program, in which a name has one meaning: everything in tests/<folder>/<stem>.cpp is in
    namespace <folder>_<stem>."""
    tests = tree.root / "tests"
    for path in sorted([*tests.rglob("*.cpp"), *tests.rglob("*.hpp"), *tests.rglob("*.cu")]):
        code = code_of(path.read_text(encoding="utf-8"))
        if not (first := TEST_CASE.search(code)):
            continue
        name = "_".join(path.relative_to(tests).with_suffix("").parts)
        if not path.name.endswith(("_test.cpp", "_test.cu")):
            yield f"{path.relative_to(tree.root)}: test cases must be in a file named *_test.cpp"
        elif path.suffix == ".cpp" and not re.search(rf"^namespace {name} {{", code[: first.start()], re.MULTILINE):
            yield f"{path.relative_to(tree.root)}: its test cases must be in the namespace {name}"


OPTIONS_PAGE = "docs/options.md"
OPTIONS = re.compile(r"^struct (\w+Options|Discard|HostBackup|FileBackup|FileSource|PeerBackup|Compressed|Verified) \{\n(.*?)^\};", re.M | re.S)
DETAIL = re.compile(r"^namespace [^\n]*\bdetail\b.*?^} // namespace [^\n]*\bdetail\b", re.M | re.S)
# A data member and its default: `bool retain = true;`, `Order order{};`.
MEMBER = re.compile(r"^    (?!friend |static |using |//|\[\[)\S[^={;]*? (?!const|noexcept)(\w+)(?: = (.+)|(\{.*\}))?;", re.M)


def options_of(text):
    """Yields (struct, {option: default}) of the options that a header declares for programs; "" is a default of {}."""
    for name, body in OPTIONS.findall(DETAIL.sub("", text)):
        yield name, {match[1]: (match[2] or match[3] or "").removeprefix("{}") for match in MEMBER.finditer(body)}


def check_options(tree):
    """The page of options lists every option of every options structure, in the order of declaration, with its default."""
    path, listed = tree.root / OPTIONS_PAGE, {}
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    for name, rows in re.findall(r"^\| \*\*`(\w+)(?:<\w+>)?`\*\* \|[^\n]*\n(.*?)(?=^\| \*\*|^##|\Z)", page, re.M | re.S):
        listed[name] = dict(re.findall(r"^\| `(\w+)` \| ?`?([^|]*?)`? ?\|", rows, re.M))
    declared = dict(one for text in tree.headers.values() for one in options_of(text))
    for name in sorted(declared.keys() | listed.keys()):
        there, here = declared.get(name), listed.get(name)
        if there is None or here is None:
            yield f"{OPTIONS_PAGE}: {name} is {'no options of a header' if there is None else 'missing'}"
        elif list(there.items()) != list(here.items()):
            odd = next((option for option in [*there, *here] if there.get(option) != here.get(option)), "the order of its options")
            yield f"{OPTIONS_PAGE}: {name} differs from the header: {odd}"


def anchors_of(text):
    """Yields GitHub's anchors for the headings of a page."""
    for heading in re.findall(r"^#+ +(.*?) *$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def check_links(tree):
    """Checks links of the pages to files and to headings of pages."""
    pages = [path for path in [*tree.root.glob("*.md"), *(tree.root / "docs").rglob("*.md"), *tree.root.glob("*/*/README.md")]
             if "build" not in path.relative_to(tree.root).parts]
    for page in sorted(set(pages)):
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.M | re.S)):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            to = (page.parent / name).resolve() if name else page
            if not to.exists():
                yield f"{page.relative_to(tree.root)}: link to {target}, which does not exist"
            elif anchor and to.suffix == ".md" and anchor not in anchors_of(to.read_text(encoding="utf-8")):
                yield f"{page.relative_to(tree.root)}: {name or 'the page'} has no heading #{anchor}"


RULES = [rule for name, rule in list(globals().items()) if name.startswith("check_")]


def violations(root):
    tree = Tree(Path(root))
    return [message for rule in RULES for message in rule(tree)]


def main():
    found = violations(Path(__file__).resolve().parents[2])
    for message in found:
        print(message)
    print(f"{len(found)} violations of {len(RULES)} rules" if found else f"{len(RULES)} rules hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
