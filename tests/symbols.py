#!/usr/bin/env python3
"""Checks that a library exports exactly some names, and those of a header each with a version; that it needs no CUDA
library, so that it loads on a machine without a GPU and with any runtime; and that it is never unloaded: its threads may
still run, and threads that end destroy what they have of it."""
import argparse
import re
import subprocess
import sys
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--nm", required=True)
parser.add_argument("--readelf", required=True)
parser.add_argument("--header", type=Path)
parser.add_argument("library")
parser.add_argument("names", nargs="*")
arguments = parser.parse_args()


def said(*command):
    return subprocess.run([*command, arguments.library], check=True, capture_output=True, text=True).stdout


wanted, shown, failures = set(arguments.names), set(), []
if arguments.header:
    wanted |= set(re.findall(r"^MEMSAVER_API\s[^;(]*?\b(\w+)\(", arguments.header.read_text(), re.MULTILINE))
for line in said(arguments.nm, "--dynamic", "--defined-only").splitlines():
    kind, symbol = line.split()[-2:]
    if kind == "A" and re.fullmatch(r"MEMSAVER_[\d.]+(@@MEMSAVER_[\d.]+)?", symbol):
        continue  # the version itself
    name, _, version = symbol.partition("@")
    shown.add(name)
    if arguments.header and (kind != "T" or not re.fullmatch(r"@?MEMSAVER_[\d.]+", version)):
        failures.append(f"shows in this way: {line}")
failures += [f"lacks {name}" for name in sorted(wanted - shown)] + [f"shows {name}" for name in sorted(shown - wanted)]
dynamic = said(arguments.readelf, "--dynamic", "--wide")
needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
failures += [f"needs {name}" for name in needed if name.startswith(("libcuda.so", "libcudart.so"))]
if not re.search(r"\(FLAGS_1\).*\bNODELETE\b", dynamic):
    failures.append("was linked without -z nodelete")
print(f"{arguments.library}: " + ("; ".join(failures) or f"{len(wanted)} symbols, needs {', '.join(needed)}"))
sys.exit(bool(failures) or not wanted)
