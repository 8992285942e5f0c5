#!/usr/bin/env python3
"""Plants each violation that check_tree.py detects in a small valid tree, and tests that it alone is reported."""
import tempfile
import unittest
from pathlib import Path

import check_tree

VERSION = "#define MEMSAVER_VERSION_MAJOR 0\n#define MEMSAVER_VERSION_MINOR 1\n"
INCLUDE = "include/memsaver/"


def header(*includes, body=""):
    return "\n".join(["// A header.", "#pragma once", *(f"#include {name}" for name in includes), body, ""])


def definitions(of, *includes, body=""):
    return header(f'"memsaver/{of}.hpp"', *includes, body=body)


def defined_header(name, *includes):
    return header(*includes) + f'#ifndef MEMSAVER_COMPILED\n#include "memsaver/{name}.ipp"\n#endif\n'


DRIVER = '"memsaver/driver/driver.hpp"'
API = '"memsaver/driver/cuda_api.hpp"'
CORE = '"memsaver/core/core.hpp"'
TREE = {
    INCLUDE + "core/version.hpp": header(body=VERSION),
    INCLUDE + "core/core.hpp": header('"memsaver/core/version.hpp"'),
    INCLUDE + "driver/cuda_api.hpp": header("<dlfcn.h>", CORE),
    INCLUDE + "memsaver.hpp": header(DRIVER),
    INCLUDE + "driver/driver.hpp": defined_header("driver/driver", API),
    INCLUDE + "driver/driver.ipp": definitions("driver/driver", body="MEMSAVER_INLINE void f() {}"),
    INCLUDE + "driver/impl.hpp": header('"memsaver/driver/driver.ipp"'),
}
INTEROP = {"interop/no_throw.hpp": header(), "interop/first.hpp": header("<first.h>", '"memsaver/interop/no_throw.hpp"')}
LAYERS = {f"{layer}/{layer}.hpp": header(DRIVER) for layer in ("heap", "host", "interop")}
BODY = '// exit(1)\n/* abort() */\nconst char* s = "exit(1)"; static_assert(true); auto y = op.abort(); p->exit(2);'

# Headers that no rule reports, beside the valid tree or instead of its own.
FINE = [
    {},
    {"driver/driver.ipp": definitions("driver/driver", "<mutex>")},
    {**INTEROP, "interop/second.hpp": header('"memsaver/interop/no_throw.hpp"')},
    {"interop/first.hpp": header("<vector>"), "memsaver.hpp": header(DRIVER, '"memsaver/interop/first.hpp"')},
    LAYERS,
    # a header that only definitions want
    {"driver/own.hpp": header(), "driver/driver.ipp": definitions("driver/driver", '"memsaver/driver/own.hpp"')},
    {"memsaver.hpp": header(body=BODY)},
]

# What is reported, and the headers that it is reported of.
PLANTED = [
    ("core/ may not include driver/", {"core/version.hpp": header(DRIVER, body=VERSION)}),
    ("must not include the umbrella", {"driver/cuda_api.hpp": header('"memsaver/memsaver.hpp"')}),
    ("does not exist", {"driver/cuda_api.hpp": header('"memsaver/core/gone.hpp"')}),
    ("must be included as", {"driver/cuda_api.hpp": header('"cuda_types.hpp"')}),
    ("not in the list of layers", {"misc/misc.hpp": header()}),
    ("has no door", {"heap/extent.hpp": header()}),
    ("is not included by", {"driver/hidden.hpp": header()}),
    ("<mutex> is slow", {"driver/cuda_api.hpp": header("<mutex>", CORE)}),
    ("<functional> has its price", {"driver/cuda_api.hpp": header("<functional>", CORE)}),
    ("may not include another one", {**INTEROP, "interop/second.hpp": header('"memsaver/interop/first.hpp"')}),
    ("is opt-in", {"interop/first.hpp": header("<first.h>"), "memsaver.hpp": header(DRIVER, '"memsaver/interop/first.hpp"')}),
    ("is opt-in", {"interop/first.hpp": header("<vector>"), "testing/testing.hpp": header('"memsaver/interop/first.hpp"')}),
    ("host/ may not include heap/", {**LAYERS, "host/host.hpp": header('"memsaver/heap/heap.hpp"')}),
    ("driver.ipp:4: driver/ may not include heap/",
     {"heap/heap.hpp": header(), "driver/driver.ipp": definitions("driver/driver", '"memsaver/heap/heap.hpp"')}),
    ("memsaver::inline v0_1", {"memsaver.hpp": header(body="namespace memsaver::inline v0_3 {}")}),
    ("memsaver::inline v0_1", {"memsaver.hpp": header(body="namespace memsaver {}")}),
    *(("must not end the process", {"memsaver.hpp": header(body=f"inline void g() {{ {call} }}")})
      for call in ("exit(1);", "std::abort();", "::_exit(2);", "f(std::terminate);", "assert(x);")),
]


class CheckTree(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        for name, text in TREE.items():
            self.write(name, text)

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def plant(self, headers):
        for name, text in headers.items():
            self.write(INCLUDE + name, text)

    def assert_found(self, text):
        found = check_tree.violations(self.root)
        self.assertEqual(len(found), 1, found)
        self.assertIn(text, found[0])

    def test_headers(self):
        for text, headers in [*((None, headers) for headers in FINE), *PLANTED]:
            with self.subTest(text=text, headers=[*headers]):
                self.tearDown()
                self.setUp()
                self.plant(headers)
                if text is None:
                    self.assertEqual(check_tree.violations(self.root), [])
                else:
                    self.assert_found(text)

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
