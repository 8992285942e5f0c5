#!/usr/bin/env python3
"""Reports public names that the reference does not document, and exits with 1 if there are any.

    check_reference.py FOLDER    output of the target `reference`: FOLDER/xml and FOLDER/warnings.txt

A name counts once, however many overloads and declarations it has: one of them must be documented. Exempt are: names
known from the language and its library (constructors, which the class documents; destructors; operators; `begin`,
`data`); members of a documented struct and values of a documented enumeration, which documents them if their names do
not suffice; methods required by a concept, which documents them; those of Device in the classes that forward to it.
"""
import collections
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

KINDS = {"class", "struct", "union", "concept", "namespace"}
# Names that the standard requires of containers, allocators and exceptions.
STANDARD = {"begin", "end", "data", "size", "empty", "what", "value_type", "size_type", "difference_type", "pointer",
            "const_pointer", "reference", "const_reference", "is_always_equal", "rebind", "other",
            "propagate_on_container_move_assignment", "propagate_on_container_swap"}
FORWARDS = {"memsaver::AnyDriver", "memsaver::DeviceAround"}


def text_of(element, tag):
    found = element.find(tag)
    return "" if found is None else "".join(found.itertext()).strip()


def described(element):
    return any(text_of(element, tag) for tag in ("briefdescription", "detaileddescription", "inbodydescription"))


def of_the_language(member, owner):
    name = text_of(member, "name")
    return name[0] == "~" or name in {owner.rsplit("::")[-1], *STANDARD} or re.match(r"operator\b", name) is not None


def undocumented(folder):
    """Returns [(place, name)], sorted by place."""
    compounds = [each for path in (folder / "xml").glob("*.xml") for each in ElementTree.parse(path).getroot().findall("compounddef")
                 if each.get("kind") in KINDS and text_of(each, "compoundname").startswith("memsaver")]
    # The methods that the concepts' definitions name: `{ d.map(a, n, h) } noexcept`.
    by_concept = {name for each in compounds if each.get("kind") == "concept"
                  for name in re.findall(r"[{(]\s*\w+\.(\w+)\(", text_of(each, "initializer"))}
    names = collections.defaultdict(list)  # for each name: (described, place)
    for compound in compounds:
        owner = text_of(compound, "compoundname")
        if compound.get("prot", "public") != "public" or owner.rsplit("::")[-1] in STANDARD:
            continue
        names[owner].append((described(compound), place(compound)))
        of_class = compound.get("kind") in ("class", "struct", "union")
        for member in compound.iter("memberdef"):
            name, kind = text_of(member, "name"), member.get("kind")
            if member.get("prot") != "public" or kind == "friend" or (of_class and kind == "variable"):
                continue
            if of_class and (name in by_concept or of_the_language(member, owner)):
                continue
            if not of_class and name.startswith("operator") and not name.startswith('operator"'):
                continue
            names[f"{owner}::{name}"].append((described(member), place(member)))
    for name in list(names):
        owner, _, method = name.rpartition("::")
        if owner in FORWARDS and f"memsaver::Device::{method}" in names:
            del names[name]
    return sorted((said[0][1], name) for name, said in names.items() if not any(each for each, _ in said))


def place(element):
    at = element.find("location")
    return (at.get("file"), int(at.get("line"))) if at is not None else ("", 0)


def main():
    folder = Path(sys.argv[1])
    warnings = (folder / "warnings.txt").read_text(encoding="utf-8").splitlines()
    missing = undocumented(folder)
    assert len(list((folder / "xml").glob("classmemsaver*.xml"))) > 50, "Doxygen wrote no classes of memsaver"
    for line in warnings:
        print(line)
    for (file, line), name in missing:
        print(f"{file}:{line}: {name} is not documented")
    print(f"{len(missing)} public names are not documented, {len(warnings)} warnings of Doxygen")
    return 1 if missing or warnings else 0


if __name__ == "__main__":
    sys.exit(main())
