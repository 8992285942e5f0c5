#!/usr/bin/env python3
"""Runs the demo and checks that it prints what docs/demo.md shows: the same lines, whatever the sizes and times.

    demo_page.py DEMO
"""
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "demo.md"


def shape(text):
    """Returns the lines with text, without bars, numbers, units and the device's name."""
    lines = []
    for line in text.splitlines():
        line = re.sub(r"[#.]{20,}", "", line)
        line = re.sub(r"^memsaver on .*?: ", "memsaver on a device: ", line)
        line = re.sub(r"\d[\d.,]*(?: (?:[KMGT]iB|B|ms|s)\b)?", "", line)
        line = " ".join(line.split())
        if line:
            lines.append(line)
    return lines


def main():
    shown = re.search(r"<!-- demo:begin -->.*?^```text\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    ran = subprocess.run([sys.argv[1]], capture_output=True, text=True, timeout=600)
    if ran.returncode != 0:
        sys.exit(f"the demo failed:\n{ran.stdout}\n{ran.stderr}")
    wanted, got = shape(shown[1]), shape(ran.stdout)
    for line in [line for line in got if line not in wanted]:
        print(f"printed, but not shown in {PAGE.name}: {line}")
    for line in [line for line in wanted if line not in got]:
        print(f"shown in {PAGE.name}, but not printed: {line}")
    if wanted != got:
        sys.exit(f"the demo does not print what {PAGE.name} shows:\n{ran.stdout}")


if __name__ == "__main__":
    main()
