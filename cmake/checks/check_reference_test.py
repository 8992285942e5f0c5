#!/usr/bin/env python3
"""Runs Doxygen with docs/Doxyfile.in on small headers, and tests what check_reference.py reports."""
import subprocess
import tempfile
import unittest
from pathlib import Path

import check_reference

ROOT = Path(__file__).resolve().parents[2]
HEADER = """// A file.
#pragma once
namespace memsaver::inline v0_3 {
%s
} // namespace memsaver::inline v0_3
"""


class CheckReference(unittest.TestCase):
    def names(self, code):
        """Returns the undocumented names of a header, without `memsaver::`."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name in ("include/memsaver", "docs"):
                (root / name).mkdir(parents=True)
            (root / "include/memsaver/header.hpp").write_text(HEADER % code, encoding="utf-8")
            (root / "docs/reference.dox").write_text("/** @namespace memsaver\n * All. */\n", encoding="utf-8")
            settings = (ROOT / "docs/Doxyfile.in").read_text(encoding="utf-8")
            for name, value in {"REFERENCE_DIR": root, "PROJECT_VERSION": "1", "PROJECT_DESCRIPTION": "d"}.items():
                settings = settings.replace(f"@{name}@", str(value))
            (root / "Doxyfile").write_text(settings, encoding="utf-8")
            subprocess.run(["doxygen", "Doxyfile"], cwd=root, check=True)
            self.assertEqual((root / "warnings.txt").read_text(encoding="utf-8"), "")
            return [name.removeprefix("memsaver::") for _, name in check_reference.undocumented(root)]

    def test_what_is_missing(self):
        self.assertEqual(self.names("struct A {};\n/// B.\nstruct B { void f(); };\nenum class E { one };\nvoid g();\n"
                                    "template <class T>\nconcept C = true;\nusing T = int;\ninline constexpr int n = 1;\n"
                                    'class [[gnu::visibility("default")]] D {};\nconstexpr int operator""_x(char);'),
                         ["A", "B::f", "E", "g", "C", "T", "n", "D", 'operator""_x'])

    def test_one_of_several_is_enough(self):
        self.assertEqual(self.names("struct A;\n/// A.\nstruct A {\n    /// f.\n    void f();\n    void f(int);\n};\n/// g.\n"
                                    "void g();\nvoid g(int);"), [])

    def test_what_is_not_asked_for(self):
        self.assertEqual(self.names("/// A.\nclass A {\npublic:\n    A();\n    explicit A(int);\n    A(const A&) = delete;\n    ~A();\n"
                                    "    operator bool() const;\n    friend bool operator==(A, A);\n    int size() const;\n    int bytes;\n"
                                    "private:\n    void f();\n};\n/// E.\nenum class E { one };\nbool operator<(A, A);\n"
                                    "namespace detail {\nstruct D { void f(); };\nvoid g();\n}"), [])

    def test_what_a_concept_asks_for(self):
        self.assertEqual(self.names("/// C.\ntemplate <class T>\nconcept C = requires(const T d, int n) {\n    { d.map(n) } noexcept;\n"
                                    "    { d.count() };\n};\n/// A.\nstruct A { void map(int) const; int count() const; void more(); };"),
                         ["A::more"])


if __name__ == "__main__":
    unittest.main()
