#!/usr/bin/env python3
"""Plants each violation that check_tree.py detects in a small valid tree, and tests that it alone is reported."""
import tempfile
import unittest
from pathlib import Path

import check_tree

VERSION = "#define MEMSAVER_VERSION_MAJOR 0\n#define MEMSAVER_VERSION_MINOR 1\n"


def header(*includes, body=""):
    return "\n".join(["// A header.", "#pragma once", *(f"#include {name}" for name in includes), body, ""])


def definitions(of, *includes, body=""):
    return header(f'"memsaver/{of}.hpp"', *includes, body=body)


def defined_header(name, *includes):
    return header(*includes) + f'#ifndef MEMSAVER_COMPILED\n#include "memsaver/{name}.ipp"\n#endif\n'


class CheckTree(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.write("include/memsaver/core/version.hpp", header(body=VERSION))
        self.write("include/memsaver/core/core.hpp", header('"memsaver/core/version.hpp"'))
        self.write("include/memsaver/driver/cuda_api.hpp", header("<dlfcn.h>", '"memsaver/core/core.hpp"'))
        self.write("include/memsaver/memsaver.hpp", header('"memsaver/driver/driver.hpp"'))
        self.write("include/memsaver/driver/driver.hpp", defined_header("driver/driver", '"memsaver/driver/cuda_api.hpp"'))
        self.write("include/memsaver/driver/driver.ipp", definitions("driver/driver", body="MEMSAVER_INLINE void f() {}"))
        self.list_headers()

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def list_headers(self):
        for name in check_tree.written_now(self.root):
            (self.root / name).unlink()
        for name, text in check_tree.compiled_files(check_tree.Tree(self.root)).items():
            self.write(name, text)

    def assert_found(self, text):
        found = check_tree.violations(self.root)
        self.assertEqual(len(found), 1, found)
        self.assertIn(text, found[0])

    def test_clean_tree(self):
        self.assertEqual(check_tree.violations(self.root), [])

    def test_include_that_points_down(self):
        self.write("include/memsaver/core/version.hpp", header('"memsaver/driver/driver.hpp"', body=VERSION))
        self.assert_found("core/ may not include driver/")

    def test_layer_that_includes_the_umbrella(self):
        self.write("include/memsaver/driver/cuda_api.hpp", header('"memsaver/memsaver.hpp"'))
        self.assert_found("must not include the umbrella")

    def test_include_of_nothing(self):
        self.write("include/memsaver/driver/cuda_api.hpp", header('"memsaver/core/gone.hpp"'))
        self.assert_found("does not exist")

    def test_include_without_a_layer(self):
        self.write("include/memsaver/driver/cuda_api.hpp", header('"cuda_types.hpp"'))
        self.assert_found("must be included as")

    def test_unknown_layer(self):
        self.write("include/memsaver/misc/misc.hpp", header())
        self.list_headers()
        self.assert_found("not in the list of layers")

    def test_missing_door(self):
        self.write("include/memsaver/heap/extent.hpp", header())
        self.list_headers()
        self.assert_found("has no door")

    def test_header_hidden_from_its_door(self):
        self.write("include/memsaver/driver/hidden.hpp", header())
        self.list_headers()
        self.assert_found("is not included by")

    def test_umbrella_that_is_slow_to_read(self):
        self.write("include/memsaver/driver/driver.ipp", definitions("driver/driver", "<mutex>"))
        self.assertEqual(check_tree.violations(self.root), [])
        self.write("include/memsaver/driver/cuda_api.hpp", header("<mutex>", '"memsaver/core/core.hpp"'))
        self.assert_found("<mutex> is slow")
        self.write("include/memsaver/driver/cuda_api.hpp", header("<functional>", '"memsaver/core/core.hpp"'))
        self.assert_found("<functional> has its price")

    def test_adapter_that_knows_another(self):
        self.write("include/memsaver/interop/no_throw.hpp", header())
        self.write("include/memsaver/interop/first.hpp", header("<first.h>", '"memsaver/interop/no_throw.hpp"'))
        self.write("include/memsaver/interop/second.hpp", header('"memsaver/interop/no_throw.hpp"'))
        self.list_headers()
        self.assertEqual(check_tree.violations(self.root), [])
        self.write("include/memsaver/interop/second.hpp", header('"memsaver/interop/first.hpp"'))
        self.assert_found("may not include another one")

    def test_umbrella_with_an_adapter(self):
        self.write("include/memsaver/interop/first.hpp", header("<first.h>"))
        self.write("include/memsaver/memsaver.hpp", header('"memsaver/driver/driver.hpp"', '"memsaver/interop/first.hpp"'))
        self.list_headers()
        self.assert_found("is opt-in")
        self.write("include/memsaver/interop/first.hpp", header("<vector>"))
        self.assertEqual(check_tree.violations(self.root), [])
        self.write("include/memsaver/testing/testing.hpp", header('"memsaver/interop/first.hpp"'))
        self.list_headers()
        self.assert_found("is opt-in")

    def test_layer_that_knows_fewer(self):
        for layer in ("heap", "host", "interop"):
            self.write(f"include/memsaver/{layer}/{layer}.hpp", header('"memsaver/driver/driver.hpp"'))
        self.write("include/memsaver/c/c.hpp", header('"memsaver/host/host.hpp"'))
        self.list_headers()
        self.assertEqual(check_tree.violations(self.root), [])
        self.write("include/memsaver/host/host.hpp", header('"memsaver/heap/heap.hpp"'))
        self.assert_found("host/ may not include heap/")
        self.write("include/memsaver/host/host.hpp", header())
        self.write("include/memsaver/c/c.hpp", header('"memsaver/interop/no_throw.hpp"'))
        self.write("include/memsaver/interop/no_throw.hpp", header())
        self.list_headers()
        self.assertTrue(any("c/ may not include interop/" in found for found in check_tree.violations(self.root)))

    def test_definitions_that_point_down(self):
        self.write("include/memsaver/heap/heap.hpp", header())
        self.write("include/memsaver/driver/driver.ipp", definitions("driver/driver", '"memsaver/heap/heap.hpp"'))
        self.list_headers()
        self.assert_found("driver.ipp:4: driver/ may not include heap/")

    def test_header_that_only_definitions_want(self):
        self.write("include/memsaver/driver/own.hpp", header())
        self.write("include/memsaver/driver/driver.ipp", definitions("driver/driver", '"memsaver/driver/own.hpp"'))
        self.list_headers()
        self.assertEqual(check_tree.violations(self.root), [])

    def test_header_that_does_not_end_with_its_definitions(self):
        wanted = defined_header("driver/driver", '"memsaver/driver/cuda_api.hpp"')
        for text in (header('"memsaver/driver/cuda_api.hpp"'), wanted + "int more;\n", wanted.replace("#ifndef MEMSAVER_COMPILED", "#if 1")):
            self.write("include/memsaver/driver/driver.hpp", text)
            self.assert_found("driver/driver.hpp: must end with")

    def test_definitions_without_a_header(self):
        self.write("include/memsaver/driver/gone.ipp", header())
        self.list_headers()
        self.assert_found("driver/gone.hpp does not exist")

    def test_definitions_that_do_not_include_their_header(self):
        self.write("include/memsaver/driver/driver.ipp", header())
        self.assert_found("does not include driver/driver.hpp")

    def test_definitions_included_elsewhere(self):
        self.write("include/memsaver/memsaver.hpp", header('"memsaver/driver/driver.ipp"'))
        self.assert_found("only driver/driver.hpp may include")

    def test_links(self):
        self.write("docs/a.md", "# One: *two*, `three`\n```\n# no heading\n```\n")
        for target, good in (("docs/a.md", True), ("docs/a.md#one-two-three", True), ("https://nowhere.test/b.md", True),
                             ("docs/b.md", False), ("docs/a.md#one", False), ("docs/a.md#no-heading", False)):
            self.write("README.md", f"See [it]({target}); `[not](a.link)`.\n")
            self.assertEqual(check_tree.violations(self.root) == [], good, target)

    def test_page_of_options(self):
        options = """struct PauseOptions {
    /// A comment; and {.more = 1} of it.
    Order order{};
    unsigned threads = 8; // as many
    std::string who = "a thread";
    [[nodiscard]] PauseOptions normalized() const {
        if (threads > 9) fail("so");
        return *this;
    }
    std::function<void(int)> done{};
    friend bool operator==(const PauseOptions&, const PauseOptions&) = default;
};
namespace detail {
struct HiddenOptions {
    int more = 1;
};
} // namespace detail
"""
        page = """| option | default | |\n|---|---|---|\n| **`PauseOptions`** | | `pause(tags)` |\n| `order` | | what to wait for |
| `threads` | `8` | how many |\n| `who` | `"a thread"` | in errors |\n| `done` | | called at the end |\n"""
        self.write("include/memsaver/driver/cuda_api.hpp", header("<dlfcn.h>", '"memsaver/core/core.hpp"', body=options))
        self.assert_found("PauseOptions is missing")
        self.write(check_tree.OPTIONS_PAGE, page)
        self.assertEqual(check_tree.violations(self.root), [])
        rows = page.splitlines()[-4:]
        for wrong, says in ((page.replace("`8`", "`9`"), "threads"), (page.replace("| `done` | | called at the end |\n", ""), "done"),
                            (page.replace("\n".join(rows[:2]), "\n".join(rows[1::-1])), "the order of its options"),
                            (page + "| **`Other`** | | |\n", "Other is no options of a header")):
            self.write(check_tree.OPTIONS_PAGE, wrong)
            self.assert_found(says)

    def test_compiled_files(self):
        self.write("cmake/compiled/driver.cpp", "// Another.\n")
        self.assert_found("cmake/compiled/driver.cpp: out of date")
        (self.root / "cmake/compiled/driver.cpp").unlink()
        self.assert_found("cmake/compiled/driver.cpp: out of date")
        self.list_headers()
        self.write("cmake/compiled/more.cpp", "")
        self.assert_found("cmake/compiled/more.cpp: out of date")
        self.list_headers()
        self.write("include/memsaver/impl.hpp", "// Another.\n#pragma once\n")
        self.assertTrue(any("include/memsaver/impl.hpp: out of date" in each for each in check_tree.violations(self.root)))

    def test_header_without_an_introduction(self):
        self.write("include/memsaver/memsaver.hpp", "#pragma once\n")
        self.assert_found("first line")

    def test_header_without_a_guard(self):
        self.write("include/memsaver/memsaver.hpp", "// A header.\n")
        self.assert_found("pragma once")

    def test_macros_of_other_libraries(self):
        pair = {"off": '// Removes.\n#pragma push_macro("A")\n#pragma push_macro("B")\n#undef A\n#undef B\n',
                "on": '// Restores.\n#pragma pop_macro("B")\n#pragma pop_macro("A")\n'}
        off, on = ('"memsaver/core/macros_off.hpp"', '"memsaver/core/macros_on.hpp"')
        for name, text in pair.items():
            self.write(f"include/memsaver/core/macros_{name}.hpp", text)
        core, driver = '"memsaver/core/version.hpp"', '"memsaver/driver/driver.hpp"'
        self.write("include/memsaver/core/core.hpp", header(off, core) + f"\n#include {on}\n")
        guarded = defined_header("driver/driver", off, '"memsaver/driver/cuda_api.hpp"')
        self.write("include/memsaver/driver/driver.hpp", guarded + f"\n#include {on}\n")
        whole = header(off, driver) + f"\n#include {on}\n"
        self.write("include/memsaver/memsaver.hpp", whole)
        self.list_headers()
        self.assertEqual(check_tree.violations(self.root), [])
        for text in (header(driver), header(off, driver), header(driver) + f"\n#include {on}\n", whole + "int n;\n"):
            self.write("include/memsaver/memsaver.hpp", text)
            self.assert_found("memsaver.hpp: must begin with core/macros_off.hpp and end with core/macros_on.hpp")
        self.write("include/memsaver/memsaver.hpp", whole)
        self.write("include/memsaver/core/macros_on.hpp", pair["on"].replace('"B"', '"C"'))
        self.assert_found("must restore what")
        self.write("include/memsaver/core/macros_on.hpp", pair["on"])
        self.write("include/memsaver/core/macros_off.hpp", pair["off"].replace("#undef B\n", ""))
        self.assert_found("must undefine each")

    def test_namespace_of_another_version(self):
        self.write("include/memsaver/memsaver.hpp", header(body="namespace memsaver::inline v0_3 {}"))
        self.assert_found("memsaver::inline v0_1")

    def test_namespace_without_a_version(self):
        self.write("include/memsaver/memsaver.hpp", header(body="namespace memsaver {}"))
        self.assert_found("memsaver::inline v0_1")

    def test_ways_to_end_the_process(self):
        for call in ("exit(1);", "std::abort();", "::_exit(2);", "f(std::terminate);", "assert(x);"):
            with self.subTest(call=call):
                self.write("include/memsaver/memsaver.hpp", header(body=f"inline void g() {{ {call} }}"))
                self.assert_found("must not end the process")

    def test_what_only_looks_like_an_end(self):
        body = '// exit(1)\n/* abort() */\nconst char* s = "exit(1)"; static_assert(true); auto y = op.abort(); p->exit(2);'
        self.write("include/memsaver/memsaver.hpp", header(body=body))
        self.assertEqual(check_tree.violations(self.root), [])

    def test_header_for_c(self):
        c = header("<stddef.h>", body="MEMSAVER_API const char*\n    memsaver_f(void) MEMSAVER_NOEXCEPT; // memsaver_g();")
        self.write("include/memsaver/c.h", c)
        self.list_headers()
        self.assertEqual(check_tree.violations(self.root), [])
        self.write("include/memsaver/c.h", c.replace("stddef.h", "stdio.h"))
        self.assert_found("a header for C may include only")

    def test_test_case_where_nobody_looks(self):
        self.write("tests/core/sizes.cpp", 'TEST_CASE("x") {}\n')
        self.assert_found("*_test.cpp")

    def test_test_case_in_its_place(self):
        self.write("tests/interop/containers_test.cu", 'TEST_CASE("runs") {}\n')
        self.write("tests/core/sizes_test.cpp", 'namespace core_sizes_test {\nTEST_CASE("x") {}\n}\n')
        self.assertEqual(check_tree.violations(self.root), [])

    def test_test_case_without_a_namespace_of_its_own(self):
        for text in ('TEST_CASE("x") {}\n', 'namespace sizes {\nTEST_CASE("x") {}\n}\n'):
            self.write("tests/core/sizes_test.cpp", text)
            self.assert_found("core_sizes_test")


if __name__ == "__main__":
    unittest.main()
