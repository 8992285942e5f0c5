#!/usr/bin/env python3
"""symbols.py --nm NM --readelf READELF --header c.h LIBRARY: checks that LIBRARY exports exactly the declarations of
c.h, each function with a version, and that it is never unloaded: its threads may still run, and threads that end destroy
what they have of it."""
import argparse
import re
import subprocess
import sys

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--nm", required=True)
parser.add_argument("--readelf", required=True)
parser.add_argument("--header", required=True)
parser.add_argument("library")
arguments = parser.parse_args()

with open(arguments.header, encoding="utf-8") as header:
    declared = set(re.findall(r"^MEMSAVER_API\s[^;(]*?\b(\w+)\(", header.read(), re.MULTILINE))
listed = subprocess.run(
    [arguments.nm, "--dynamic", "--defined-only", arguments.library], check=True, capture_output=True, text=True
).stdout
shown, wrong = set(), []
for line in listed.splitlines():
    kind, symbol = line.split()[-2:]
    if kind == "A" and re.fullmatch(r"MEMSAVER_[\d.]+(@@MEMSAVER_[\d.]+)?", symbol):
        continue  # the version itself
    name, _, version = symbol.partition("@")
    shown.add(name)
    if kind != "T" or not re.fullmatch(r"@?MEMSAVER_[\d.]+", version):
        wrong.append(line)
for what, names in (("shows", shown - declared), ("does not show", declared - shown), ("shows in this way", wrong)):
    for name in sorted(names):
        print(f"{arguments.library} {what}: {name}")
dynamic = subprocess.run(
    [arguments.readelf, "--dynamic", "--wide", arguments.library], check=True, capture_output=True, text=True
).stdout
if not re.search(r"\(FLAGS_1\).*\bNODELETE\b", dynamic):
    sys.exit(f"{arguments.library} was linked without -z nodelete")
if not declared or wrong or shown != declared:
    sys.exit(1)
print(f"{len(shown)} functions")
