#!/usr/bin/env python3
"""Compiles the C++ code in a page and runs its programs, so that pages stay correct.

    snippets.py PAGE --work DIR --library FILE -- COMPILER FLAGS...

A page's ```cpp blocks become one function, each in a scope nested in the previous one: it may use earlier declarations
or redeclare names. tests/snippets/prelude.hpp declares names that snippets take for granted. Exceptions:

- a block that includes <memsaver/memsaver.hpp> is compiled separately, without the prelude, together with the blocks
  after it that define `main`. If it has a `main`, it is also linked and run;
- a block after <!-- program:begin FILE --> must equal the contents of FILE, which is built and run elsewhere;
- a block after <!-- fragment: WHY --> is left out.

Exits with 77 and a reason if headers of the CUDA toolkit that a page needs are missing.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRELUDE = "tests/snippets/prelude.hpp"
BLOCK = re.compile(r"^(?P<indent> *)```cpp\n(?P<code>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"<!-- (fragment|program:begin):? *(.*?) *-->\s*\Z")
INCLUDE = re.compile(r"^[ \t]*#include +[<\"].*$", re.MULTILINE)
NEEDED = ["cuda.h", "cuda_runtime_api.h", "cublas_v2.h", "nvtx3/nvToolsExt.h"]


def blocks_of(page):
    """Yields (line of the first line of code, code, mark, argument of the mark)."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        mark = MARK.search(text[: match.start()])
        line = text.count("\n", 0, match.start("code")) + 1
        yield line, match["code"], mark and mark[1], mark and mark[2]


def units_of(page):
    """Returns the translation units of a page, and its errors: ([(whether it is separate, text)], [error])."""
    alone, includes, scopes, errors = [], [], [], []
    name = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page
    for line, code, mark, says in blocks_of(page):
        at = f'#line {line} "{name}"\n'
        if mark == "fragment":
            if not says:
                errors.append(f"{name}:{line}: a fragment must state its reason")
        elif mark == "program:begin":
            if (ROOT / says).read_text(encoding="utf-8") != code:
                errors.append(f"{name}:{line}: differs from {says}")
        elif "#include <memsaver/memsaver.hpp>" in code:
            alone.append(at + code)
        elif alone and re.search(r"^int main\(", code, re.MULTILINE):
            alone[-1] += at + code
        else:
            includes += INCLUDE.findall(code)
            scopes.append(at + INCLUDE.sub("", code))
    units = [(True, text) for text in alone]
    if scopes:
        head = "\n".join([f'#include "{ROOT / PRELUDE}"', *dict.fromkeys(includes), "[[maybe_unused]] static void page() {"])
        units.append((False, head + "{\n" + "{\n".join(scopes) + "}" * len(scopes) + "}\n"))
    return units, errors


def has_header(compiler, header):
    test = f"#if !__has_include(<{header}>)\n#error\n#endif\n"
    return subprocess.run([*compiler, "-E", "-x", "c++", "-"], input=test.encode(), capture_output=True).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=lambda name: Path(name).resolve())
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--library", required=True, help="library to link programs with")
    parser.add_argument("compiler", nargs="+")
    arguments = parser.parse_args()
    page, compiler = arguments.page, arguments.compiler
    # A snippet's names are for readers and may be unused.
    compiler += ["-Wall", "-Wextra", "-Werror", "-Wno-unused-variable", "-Wno-unused-but-set-variable"]

    units, errors = units_of(page)
    print(*errors, sep="\n", end="\n" if errors else "")
    arguments.work.mkdir(parents=True, exist_ok=True)
    good, left_out = not errors, None
    for number, (alone, text) in enumerate(units):
        needed = [header for header in NEEDED if not alone or f"<{header}>" in text]
        if missing := [header for header in needed if not has_header(compiler, header)]:
            left_out = f"skipped: <{missing[0]}> not found"
            continue
        source = arguments.work / f"{page.stem}_{number}.cpp"
        source.write_text(text, encoding="utf-8")
        program = source.with_suffix("")
        runs = alone and "int main(" in text
        how = [source, "-o", program, arguments.library, "-ldl", "-pthread"] if runs else ["-fsyntax-only", source]
        good = subprocess.run([*compiler, *how]).returncode == 0 and good
        if runs and good:
            good = subprocess.run([program]).returncode == 0
    if not units and not errors and not any(mark == "program:begin" for _, _, mark, _ in blocks_of(arguments.page)):
        print(f"{page}: has no C++ code to compile")
        return 1
    if good and left_out:
        print(left_out)
        return 77
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
