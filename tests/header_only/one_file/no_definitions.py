#!/usr/bin/env python3
"""Checks that a program that is compiled with MEMSAVER_COMPILED, but has no definitions, fails to link at every -O with
a message that says what to do.

    no_definitions.py [--work DIR] -- COMPILER FLAGS...
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

WANTED = "include_memsaver_impl_hpp_in_one_source_file"
MAIN = Path(__file__).with_name("main.cpp")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="+")
    command = parser.parse_args().command
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        for level in ("-O0", "-O1", "-O2", "-O3", "-Os"):
            program = Path(work) / "program"
            done = subprocess.run([*command, level, "-DMEMSAVER_COMPILED", str(MAIN), "-o", str(program), "-pthread", "-ldl"],
                                  capture_output=True, text=True, check=False, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin:/usr/local/bin"})
            said = done.returncode != 0 and WANTED in done.stderr and "error:" not in done.stderr.replace("error: ld", "").replace(
                "error: linker command failed", "")
            print(f"{level}: {'fails to link, as it should' if said else 'does not fail as it should: ' + done.stderr[:2000]}")
            failed += not said
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
