#!/usr/bin/env python3
"""Runs Doxygen with docs/Doxyfile.in on small headers, and tests what check_reference.py reports."""
import subprocess
import tempfile
import unittest
from pathlib import Path

import check_reference

ROOT = Path(__file__).resolve().parents[2]
HEADER = "// A file.\n#pragma once\nnamespace memsaver::inline v0_3 {\n/// All.\nnamespace %s {\n%s\n}\n}\n"

# Code, and the names that are reported of it.
CASES = {
    "missing": ("struct A {};\n/// B.\nstruct B { void f(); };\nenum class E { one };\nvoid g();\ntemplate <class T>\nconcept C = true;\n"
                'using T = int;\ninline constexpr int n = 1;\nclass [[gnu::visibility("default")]] D {};\n'
                'constexpr int operator""_x(char);', ["A", "B::f", "E", "g", "C", "T", "n", "D", 'operator""_x']),
    "one_of_several_is_enough": ("struct A;\n/// A.\nstruct A {\n    /// f.\n    void f();\n    void f(int);\n};\n"
                                 "/// g.\nvoid g();\nvoid g(int);", []),
    "not_asked_for": ("/// A.\nclass A {\npublic:\n    A();\n    explicit A(int);\n    A(const A&) = delete;\n    ~A();\n"
                      "    operator bool() const;\n    friend bool operator==(A, A);\n    int size() const;\n    int bytes;\n"
                      "private:\n    void f();\n};\n/// E.\nenum class E { one };\nbool operator<(A, A);\n"
                      "}\nnamespace detail {\nstruct D { void f(); };\nvoid g();", []),
    "asked_for_by_a_concept": ("/// C.\ntemplate <class T>\nconcept C = requires(const T d, int n) {\n    { d.map(n) } noexcept;\n"
                               "    { d.count() };\n};\n/// A.\nstruct A { void map(int) const; int count() const; void more(); };",
                               ["A::more"]),
}


class CheckReference(unittest.TestCase):
    def test_names(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name in ("include/memsaver", "docs"):
                (root / name).mkdir(parents=True)
            for name, (code, _) in CASES.items():
                (root / f"include/memsaver/{name}.hpp").write_text(HEADER % (name, code), encoding="utf-8")
            (root / "docs/reference.dox").write_text("/** @namespace memsaver\n * All. */\n", encoding="utf-8")
            settings = (ROOT / "docs/Doxyfile.in").read_text(encoding="utf-8")
            for name, value in {"REFERENCE_DIR": root, "PROJECT_VERSION": "1", "PROJECT_DESCRIPTION": "d"}.items():
                settings = settings.replace(f"@{name}@", str(value))
            (root / "Doxyfile").write_text(settings, encoding="utf-8")
            subprocess.run(["doxygen", "Doxyfile"], cwd=root, check=True)
            self.assertEqual((root / "warnings.txt").read_text(encoding="utf-8"), "")
            found = [name.removeprefix("memsaver::").partition("::") for _, name in check_reference.undocumented(root)]
        for case, (_, wanted) in CASES.items():
            self.assertEqual([name for of, _, name in found if of == case], wanted, case)
        self.assertEqual({of for of, _, _ in found} - CASES.keys(), set())


if __name__ == "__main__":
    unittest.main()
