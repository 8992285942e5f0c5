#!/usr/bin/env python3
"""Checks that a program with two drivers does not contain code of the library's core for each driver; exits with 1 if
it does.

    core_once.py [--nm NM] PROGRAM

Types are erased inside the library, templates are only in its interface (docs/design.md): only the shells and the
handle that erases a driver's type may exist for each driver. Compares the functions and variables that differ only in
the driver's name.
"""
import argparse
import re
import subprocess
import sys

DRIVERS = re.compile(r"\b(?:memsaver::(?:v\d+_\d+::)?)(Cuda|Host)Driver\b")
# Symbols that exist for each driver, including those nested in them, such as lambdas, and instantiations with them.
SHELLS = re.compile(r"\b(MemorySaver|TaggedArena)<DRIVER|\bAnyDriver::as<|"
                    r"\bwith_default_driver<|DRIVER::|\boperator==\(DRIVER")


def own_name(symbol):
    """Returns the qualified name of a demangled symbol: without return type, arguments and template arguments."""
    symbol = re.sub(r"^(vtable|typeinfo|typeinfo name|VTT|guard variable|construction vtable) for ", "", symbol)
    symbol = re.sub(r"\boperator(<=>|<<=?|>>=?|<=?|>=?|->\*?|\(\))", "operator_", symbol)  # part of the name
    symbol = symbol.replace("(anonymous namespace)", "anonymous")
    name, depth = "", 0
    for letter in symbol:
        if letter == "(" and depth == 0 and name:
            break
        if letter in "<(":
            depth += 1
        elif letter in ">)":
            depth -= 1
        elif depth == 0:
            name += letter
    return name.split(" ")[-1]


def twice(symbols):
    """Returns the symbols of the core that exist for both drivers, with DRIVER in place of the driver."""
    drivers = {}
    for symbol in symbols:
        named = set(DRIVERS.findall(symbol))
        if len(named) == 1:
            drivers.setdefault(DRIVERS.sub("DRIVER", symbol), set()).update(named)
    found = [symbol for symbol, named in drivers.items() if len(named) == 2 and not SHELLS.search(symbol)]
    return sorted(symbol for symbol in found if own_name(symbol).startswith("memsaver::"))


def self_test():
    host, cuda = "memsaver::v0_3::HostDriver", "memsaver::v0_3::CudaDriver"
    core = "memsaver::v0_3::detail::ArenaCore<{}>::pause(memsaver::v0_3::PauseOptions const&)"
    shell = "memsaver::v0_3::MemorySaver<{}>::pause(memsaver::v0_3::PauseOptions const&)"
    free = "void memsaver::v0_3::detail::run<{}>({})"
    standard = "std::shared_ptr<memsaver::v0_3::detail::Core> std::make_shared<memsaver::v0_3::detail::Core, {}>({}&&)"
    both = [each.format(driver, driver) for each in (core, shell, free, standard) for driver in (host, cuda)]
    assert len(twice(both)) == 2, twice(both)
    assert twice(both[1:2] + both[5:6]) == []  # one driver each
    assert own_name("vtable for memsaver::A<std::f(int)>") == "memsaver::A"
    assert own_name("std::ostream& memsaver::operator<<(std::ostream&, int)") == "memsaver::operator_"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nm", default="nm")
    parser.add_argument("program")
    options = parser.parse_args()
    self_test()
    output = subprocess.run([options.nm, "-C", "--defined-only", options.program], capture_output=True, text=True, check=True)
    symbols = {line.split(" ", 2)[2] for line in output.stdout.splitlines() if line.count(" ") >= 2}
    for driver in ("Host", "Cuda"):
        if not any(f"MemorySaver<memsaver::" in each and f"::{driver}Driver>" in each for each in symbols):
            sys.exit(f"There is no saver on {driver}Driver in it: this looks at nothing")
    found = twice(symbols)
    for symbol in found:
        print(f"for each driver: {symbol[:300]}")
    print(f"{len(symbols)} symbols, {len(found)} of the core for each driver")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
