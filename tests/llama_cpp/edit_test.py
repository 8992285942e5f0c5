#!/usr/bin/env python3
"""Tests examples/llama_cpp/edit.py on an example tree: finds places, refuses if one is missing, is idempotent,
undoes."""
import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "llama_cpp"))
import edit  # noqa: E402


class Edit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.made = {}  # for each place on the list: the line beside it, or as many calls as required
        for place in edit.EDITS:
            lines = self.made.setdefault(place.file, [f"// {place.file}"])
            if isinstance(place, edit.Line):
                lines.append(f"{place.anchor} // beside")
            else:
                lines += [f"    x = {place.old}{number});" for number in range(place.least)]
        for file in self.made:
            self.write(file)

    def write(self, file):
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(self.made[file]) + "\n", encoding="utf-8")

    def texts(self):
        return {path.relative_to(self.root).as_posix(): path.read_text(encoding="utf-8")
                for path in self.root.rglob("*") if path.is_file()}

    def run_main(self, *arguments):
        out = io.StringIO()
        with mock.patch.object(sys, "argv", ["edit.py", *arguments, str(self.root)]), contextlib.redirect_stdout(out):
            status = edit.main()
        return status, out.getvalue()

    def test_every_place_is_found_once(self):
        changed, missing = edit.apply(self.root)
        self.assertEqual(missing, [])
        self.assertEqual(sorted(changed), sorted(self.made))
        for place in edit.EDITS:
            lines = (self.root / place.file).read_text(encoding="utf-8").split("\n")
            if isinstance(place, edit.Line):
                self.assertEqual(lines.count(place.line), 1, place)
                beside = next(number for number, line in enumerate(lines) if place.anchor in line)
                self.assertEqual(lines.index(place.line) - beside, 1 if place.after else -1, place)
            else:
                self.assertEqual(sum(place.new in line for line in lines), place.least, place)

    def test_twice_is_once(self):
        edit.apply(self.root)
        before = self.texts()
        self.assertEqual(edit.apply(self.root), ([], []))
        self.assertEqual(self.texts(), before)
        self.assertIn("nothing to change", self.run_main()[1])

    def test_undone_is_as_it_was(self):
        before = self.texts()
        edit.apply(self.root)
        self.assertEqual(self.run_main("--undo")[0], 0)
        self.assertEqual(self.texts(), before)

    def test_each_missing_place_is_named_and_nothing_is_written(self):
        for place in edit.EDITS:
            with self.subTest(place=place.where()):
                what = place.anchor if isinstance(place, edit.Line) else place.old
                full = self.made[place.file]
                self.made[place.file] = [line for line in full if what not in line]
                self.write(place.file)
                before = self.texts()
                status, said = self.run_main()
                self.assertEqual(status, 1)
                self.assertIn(place.where(), said)
                self.assertIn(place.advice, said)
                self.assertEqual(self.texts(), before)
                self.made[place.file] = full
                self.write(place.file)

    def test_too_few_calls_are_missing(self):
        place = next(place for place in edit.EDITS if isinstance(place, edit.Call) and place.least > 1)
        full = self.made[place.file]
        self.made[place.file] = [line for line in full if f"{place.old}0)" not in line]
        self.write(place.file)
        self.assertEqual(edit.apply(self.root)[1], [place])

    def test_an_anchor_that_stands_twice_is_no_place(self):
        place = next(place for place in edit.EDITS if isinstance(place, edit.Line))
        self.made[place.file].append(place.anchor)
        self.write(place.file)
        self.assertEqual(edit.apply(self.root)[1], [place])

    def test_a_file_that_some_versions_do_not_have(self):
        for file in edit.MAY_BE_MISSING:
            (self.root / file).unlink()
        changed, missing = edit.apply(self.root)
        self.assertEqual(missing, [])
        self.assertEqual(set(changed), set(self.made) - edit.MAY_BE_MISSING)
        (self.root / edit.BASE).unlink()
        self.assertEqual({place.file for place in edit.apply(self.root)[1]}, {edit.BASE})

    def test_names_that_only_end_alike_stay(self):
        file = edit.CUDA + "common.cuh"
        self.made[file] += ["    cudaMallocManaged(&p, 1);", "    my_cudaMalloc(1);"]
        self.write(file)
        edit.apply(self.root)
        text = (self.root / file).read_text(encoding="utf-8")
        self.assertIn("    cudaMallocManaged(&p, 1);\n    my_cudaMalloc(1);\n", text)

    def test_what_is_not_on_the_list_is_told(self):
        path = self.root / edit.CUDA / "new.cu"
        path.write_text("void f() {\n    cudaMallocAsync(&p, 1, s);\n}\n", encoding="utf-8")
        status, said = self.run_main()
        self.assertEqual(status, 0)
        self.assertIn("new.cu:2: cudaMallocAsync(&p, 1, s);", said)

    def test_no_checkout(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaises(SystemExit):
            with mock.patch.object(sys, "argv", ["edit.py", folder]):
                edit.main()

    def test_check_writes_nothing(self):
        before = self.texts()
        status, said = self.run_main("--check")
        self.assertEqual(status, 0)
        self.assertIn("would change", said)
        self.assertEqual(self.texts(), before)


if __name__ == "__main__":
    unittest.main()
