#!/usr/bin/env python3
"""Plants each violation that check_tree.py looks for in a small clean tree, and sees it reported, alone."""
import tempfile
import unittest
from pathlib import Path

import check_tree

VERSION = "#define MEMSAVER_VERSION_MAJOR 0\n#define MEMSAVER_VERSION_MINOR 1\n"


def header(*includes, body=""):
    return "\n".join(["// A header.", "#pragma once", *(f"#include {name}" for name in includes), body, ""])


class CheckTree(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.write("include/memsaver/base/version.hpp", header(body=VERSION))
        self.write("include/memsaver/base/base.hpp", header('"memsaver/base/version.hpp"'))
        self.write("include/memsaver/driver/cuda_api.hpp", header("<cuda.h>", '"memsaver/base/base.hpp"'))
        self.write("include/memsaver/driver/driver.hpp", header('"memsaver/driver/cuda_api.hpp"'))
        self.write("include/memsaver/memsaver.hpp", header('"memsaver/driver/driver.hpp"'))
        self.list_headers()

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def list_headers(self):
        self.write("cmake/headers.cmake", check_tree.header_list(check_tree.Tree(self.root)))

    def assert_found(self, text):
        found = check_tree.violations(self.root)
        self.assertEqual(len(found), 1, found)
        self.assertIn(text, found[0])

    def test_clean_tree(self):
        self.assertEqual(check_tree.violations(self.root), [])

    def test_include_that_points_down(self):
        self.write("include/memsaver/base/version.hpp", header('"memsaver/driver/driver.hpp"', body=VERSION))
        self.assert_found("base/ may not include driver/")

    def test_layer_that_includes_the_umbrella(self):
        self.write("include/memsaver/driver/driver.hpp", header('"memsaver/driver/cuda_api.hpp"', '"memsaver/memsaver.hpp"'))
        self.assert_found("includes the umbrella")

    def test_include_of_nothing(self):
        self.write("include/memsaver/driver/cuda_api.hpp", header('"memsaver/base/gone.hpp"'))
        self.assert_found("does not exist")

    def test_include_without_a_layer(self):
        self.write("include/memsaver/driver/cuda_api.hpp", header('"cuda_types.hpp"'))
        self.assert_found("is to be written")

    def test_unknown_layer(self):
        self.write("include/memsaver/misc/misc.hpp", header())
        self.list_headers()
        self.assert_found("not in the list of layers")

    def test_missing_door(self):
        self.write("include/memsaver/memory/extent.hpp", header())
        self.list_headers()
        self.assert_found("has no door")

    def test_header_hidden_from_its_door(self):
        self.write("include/memsaver/driver/hidden.hpp", header())
        self.list_headers()
        self.assert_found("cannot be reached")

    def test_adapter_that_knows_another(self):
        self.write("include/memsaver/interop/no_throw.hpp", header())
        self.write("include/memsaver/interop/first.hpp", header("<first.h>", '"memsaver/interop/no_throw.hpp"'))
        self.write("include/memsaver/interop/second.hpp", header('"memsaver/interop/no_throw.hpp"'))
        self.list_headers()
        self.assertEqual(check_tree.violations(self.root), [])
        self.write("include/memsaver/interop/second.hpp", header('"memsaver/interop/first.hpp"'))
        self.assert_found("does not know another one")

    def test_umbrella_with_an_adapter(self):
        self.write("include/memsaver/interop/first.hpp", header("<first.h>"))
        self.write("include/memsaver/memsaver.hpp", header('"memsaver/driver/driver.hpp"', '"memsaver/interop/first.hpp"'))
        self.list_headers()
        self.assert_found("only by programs that want it")
        self.write("include/memsaver/interop/first.hpp", header("<vector>"))
        self.assertEqual(check_tree.violations(self.root), [])
        self.write("include/memsaver/testing/testing.hpp", header('"memsaver/interop/first.hpp"'))
        self.list_headers()
        self.assert_found("only by programs that want it")

    def test_second_cuda_include(self):
        self.write("include/memsaver/base/version.hpp", header("<cuda.h>", body=VERSION))
        self.assert_found("alone")

    def test_header_that_is_not_listed(self):
        self.write("include/memsaver/extra.hpp", header())
        self.assert_found("extra.hpp is missing")

    def test_listed_header_that_is_not_there(self):
        (self.root / "include/memsaver/memsaver.hpp").unlink()
        self.assert_found("memsaver.hpp does not exist")

    def test_long_header(self):
        self.write("include/memsaver/memsaver.hpp", header(body="\n" * 300))
        self.assert_found("two nouns")

    def test_header_without_an_introduction(self):
        self.write("include/memsaver/memsaver.hpp", "#pragma once\n")
        self.assert_found("first line")

    def test_header_without_a_guard(self):
        self.write("include/memsaver/memsaver.hpp", "// A header.\n")
        self.assert_found("pragma once")

    def test_namespace_of_another_version(self):
        self.write("include/memsaver/memsaver.hpp", header(body="namespace memsaver::inline v0_2 {}"))
        self.assert_found("memsaver::inline v0_1")

    def test_namespace_without_a_version(self):
        self.write("include/memsaver/memsaver.hpp", header(body="namespace memsaver {}"))
        self.assert_found("memsaver::inline v0_1")

    def test_ways_to_end_the_process(self):
        for call in ("exit(1);", "std::abort();", "::_exit(2);", "f(std::terminate);", "assert(x);"):
            with self.subTest(call=call):
                self.write("include/memsaver/memsaver.hpp", header(body=f"inline void g() {{ {call} }}"))
                self.assert_found("never ends the process")

    def test_what_only_looks_like_an_end(self):
        body = '// exit(1)\n/* abort() */\nconst char* s = "exit(1)"; static_assert(true); auto y = op.abort(); p->exit(2);'
        self.write("include/memsaver/memsaver.hpp", header(body=body))
        self.assertEqual(check_tree.violations(self.root), [])

    def test_test_case_where_nobody_looks(self):
        self.write("tests/base/sizes.cpp", 'TEST_CASE("x") {}\n')
        self.assert_found("*_test.cpp")

    def test_test_case_in_its_place(self):
        self.write("tests/interop/containers_test.cu", 'TEST_CASE("runs") {}\n')
        self.write("tests/base/sizes_test.cpp", 'namespace base_sizes_test {\nTEST_CASE("x") {}\n}\n')
        self.assertEqual(check_tree.violations(self.root), [])

    def test_test_case_without_a_namespace_of_its_own(self):
        for text in ('TEST_CASE("x") {}\n', 'namespace sizes {\nTEST_CASE("x") {}\n}\n'):
            self.write("tests/base/sizes_test.cpp", text)
            self.assert_found("base_sizes_test")


if __name__ == "__main__":
    unittest.main()
