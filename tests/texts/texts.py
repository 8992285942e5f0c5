#!/usr/bin/env python3
"""Checks that the texts of errors and events that version 0.2 had are still in the library; exits with 1 if one is missing.

    texts.py                     check: each line of texts.txt is in a string of include/, and none of gone.txt
    texts.py --extract REVISION  write texts.txt from the strings of a revision
    texts.py --gone "WHY"        move the missing ones to gone.txt, under a line that says why they went

A text is a part of a string literal between quotation marks, with a letter and a space in it, or of twelve letters.
Literals that stand side by side are one. Texts are compared without the spaces around them, because what stands between
two of them (a name, a size) may be put together differently.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"((?:\\.|[^"\\\n])*)"|\'(?:\\.|[^\'\\\n])\'|^[ \t]*#[ \t]*(?:include|pragma)[^\n]*', re.DOTALL | re.MULTILINE)


def literals(code):
    """Yields each string literal; adjacent ones as one."""
    whole, end = None, 0
    for match in TOKEN.finditer(code):
        if match[1] is None:
            continue
        between = TOKEN.sub(lambda found: " " if found[1] is None else found[0], code[end : match.start()])
        if whole is not None and not between.strip():
            whole += match[1]
        else:
            if whole is not None:
                yield whole
            whole = match[1]
        end = match.end()
    if whole is not None:
        yield whole


def texts_of(code):
    """Yields the texts in the order of the code."""
    for literal in literals(code):
        for part in re.split(r'\\"|\\n', literal):
            text = part.strip()
            if re.search(r"[A-Za-z]", text) and (" " in text or re.search(r"[A-Za-z]{12}", text)):
                yield text


def lines_of(name):
    path = HERE / name
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("# ")] if path.exists() else []


def sources():
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "include").rglob("*.[hi]pp")))


def extract(revision):
    def git(*words):
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout

    found, head = {}, f"# The texts of errors and events at {git('rev-parse', '--short=12', revision).strip()}: texts.py says how they are used.\n"
    for name in git("ls-tree", "-r", "--name-only", revision, "include").split():
        if name.endswith((".hpp", ".ipp")) and "/testing/" not in name:
            found.update(dict.fromkeys(texts_of(git("show", f"{revision}:{name}"))))
    (HERE / "texts.txt").write_text(head + "".join(f"{text}\n" for text in found), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extract", metavar="REVISION")
    parser.add_argument("--gone", metavar="WHY")
    options = parser.parse_args()
    if options.extract:
        extract(options.extract)
        return 0
    now, gone, wanted = "\n".join(texts_of(sources())), lines_of("gone.txt"), lines_of("texts.txt")
    missing = [text for text in wanted if text not in now and text not in gone]
    back = [text for text in gone if text in now]
    if options.gone and missing:
        kept = [line for line in (HERE / "texts.txt").read_text(encoding="utf-8").splitlines() if line not in missing]
        (HERE / "texts.txt").write_text("\n".join(kept) + "\n", encoding="utf-8")
        with (HERE / "gone.txt").open("a", encoding="utf-8") as out:
            out.write(f"\n# {options.gone}\n" + "".join(f"{text}\n" for text in missing))
        return 0
    for text in missing:
        print(f"missing: {text}")
    for text in back:
        print(f"listed in gone.txt, but still there: {text}")
    print(f"{len(wanted)} texts, {len(missing)} of them missing, {len(gone)} gone for a reason")
    return 1 if missing or back or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
