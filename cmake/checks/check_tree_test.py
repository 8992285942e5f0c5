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


DRIVER = '"memsaver/driver/driver.hpp"'
API = '"memsaver/driver/cuda_api.hpp"'
CORE = '"memsaver/core/core.hpp"'
TREE = {
    "core/version.hpp": header(body=VERSION),
    "core/core.hpp": header('"memsaver/core/version.hpp"'),
    "driver/cuda_api.hpp": header("<dlfcn.h>", CORE),
    "memsaver.hpp": header(DRIVER),
    "driver/driver.hpp": defined_header("driver/driver", API),
    "driver/driver.ipp": definitions("driver/driver", body="MEMSAVER_INLINE void f() {}"),
    "driver/impl.hpp": header('"memsaver/driver/driver.ipp"'),
}
INTEROP = {"interop/no_throw.hpp": header(), "interop/first.hpp": header("<first.h>", '"memsaver/interop/no_throw.hpp"')}
LAYERS = {f"{layer}/{layer}.hpp": header(DRIVER) for layer in ("heap", "host", "interop")}
MACROS_OFF, MACROS_ON = '"memsaver/core/macros_off.hpp"', '"memsaver/core/macros_on.hpp"'
END = f"\n#include {MACROS_ON}\n"
OFF = '// Removes.\n#pragma push_macro("A")\n#pragma push_macro("B")\n#undef A\n#undef B\n'
ON = '// Restores.\n#pragma pop_macro("B")\n#pragma pop_macro("A")\n'
MACROS = {
    "core/macros_off.hpp": OFF,
    "core/macros_on.hpp": ON,
    "core/core.hpp": header(MACROS_OFF, '"memsaver/core/version.hpp"') + END,
    "driver/driver.hpp": defined_header("driver/driver", MACROS_OFF, API) + END,
    "memsaver.hpp": header(MACROS_OFF, DRIVER) + END,
}
OPTIONS = {"driver/cuda_api.hpp": header("<dlfcn.h>", CORE, body="""struct PauseOptions {
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
""")}
ORDER, THREADS, DONE = "| `order` | | what to wait for |\n", "| `threads` | `8` | how many |\n", "| `done` | | called at the end |\n"
OPTIONS_HEAD, WHO = "| option | default | |\n|---|---|---|\n| **`PauseOptions`** | | `pause(tags)` |\n", '| `who` | `"a thread"` | in errors |\n'
HEADINGS = "# One: *two*, `three`\n```\n# no heading\n```\n"
BODY = '// exit(1)\n/* abort() */\nconst char* s = "exit(1)"; static_assert(true); auto y = op.abort(); p->exit(2);'

# Files that no rule reports, beside the valid tree or instead of its own.
FINE = [
    {},
    {"driver/driver.ipp": definitions("driver/driver", "<mutex>")},
    {**INTEROP, "interop/second.hpp": header('"memsaver/interop/no_throw.hpp"')},
    {"interop/first.hpp": header("<vector>"), "memsaver.hpp": header(DRIVER, '"memsaver/interop/first.hpp"')},
    LAYERS,
    # a header that only definitions want
    {"driver/own.hpp": header(), "driver/driver.ipp": definitions("driver/driver", '"memsaver/driver/own.hpp"')},
    {"memsaver.hpp": header(body=BODY)},
    MACROS,
    {**OPTIONS, "docs/options.md": OPTIONS_HEAD + ORDER + THREADS + WHO + DONE},
    {"docs/a.md": HEADINGS, "README.md": "[A](docs/a.md), [b](docs/a.md#one-two-three), [c](https://nowhere.test/b.md); `[not](a.link)`.\n"},
    {"tests/interop/containers_test.cu": 'TEST_CASE("runs") {}\n',
     "tests/core/sizes_test.cpp": 'namespace core_sizes_test {\nTEST_CASE("x") {}\n}\n'},
]

# What is reported, and the files that it is reported of.
PLANTED = [
    ("core/ may not include driver/", {"core/version.hpp": header(DRIVER, body=VERSION)}),
    ("must not include the umbrella", {"driver/cuda_api.hpp": header('"memsaver/memsaver.hpp"')}),
    ("does not exist", {"driver/cuda_api.hpp": header('"memsaver/core/gone.hpp"')}),
    ("must be included as", {"driver/cuda_api.hpp": header('"cuda_types.hpp"')}),
    ("not in the list of layers", {"misc/misc.hpp": header()}),
    ("has no door", {"heap/extent.hpp": header()}),
    ("is not included by", {"driver/hidden.hpp": header()}),
    ("<mutex> is slow", {"driver/cuda_api.hpp": header("<mutex>", CORE)}),
    ("<functional> is slow", {"driver/cuda_api.hpp": header("<functional>", CORE)}),
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
    *(("memsaver.hpp: must begin with core/macros_off.hpp and end with core/macros_on.hpp", {**MACROS, "memsaver.hpp": text})
      for text in (header(DRIVER), header(MACROS_OFF, DRIVER), header(DRIVER) + END, header(MACROS_OFF, DRIVER) + END + "int n;\n")),
    ("must restore what", {**MACROS, "core/macros_on.hpp": ON.replace('"B"', '"C"')}),
    ("must undefine each", {**MACROS, "core/macros_off.hpp": OFF.replace("#undef B\n", "")}),
    ("PauseOptions is missing", OPTIONS),
    *((says, {**OPTIONS, "docs/options.md": OPTIONS_HEAD + rows}) for says, rows in (
        ("threads", ORDER + THREADS.replace("8", "9") + WHO + DONE),
        ("done", ORDER + THREADS + WHO),
        ("the order of its options", THREADS + ORDER + WHO + DONE),
        ("Other is no options of a header", ORDER + THREADS + WHO + DONE + "| **`Other`** | | |\n"))),
    *((says, {"docs/a.md": HEADINGS, "README.md": f"See [it]({target}).\n"}) for says, target in (
        ("does not exist", "docs/b.md"), ("has no heading #one", "docs/a.md#one"), ("has no heading", "docs/a.md#no-heading"))),
    ("*_test.cpp", {"tests/core/sizes.cpp": 'TEST_CASE("x") {}\n'}),
    ("core_sizes_test", {"tests/core/sizes_test.cpp": 'TEST_CASE("x") {}\n'}),
    ("core_sizes_test", {"tests/core/sizes_test.cpp": 'namespace sizes {\nTEST_CASE("x") {}\n}\n'}),
]


class CheckTree(unittest.TestCase):
    def test_planted(self):
        for text, files in [*((None, files) for files in FINE), *PLANTED]:
            with self.subTest(text=text, files=[*files]), tempfile.TemporaryDirectory() as folder:
                for name, content in {**TREE, **files}.items():
                    path = Path(folder) / ("" if name.startswith(("README", "docs/", "tests/")) else "include/memsaver") / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(content, encoding="utf-8")
                found = check_tree.violations(folder)
                self.assertEqual(len(found), 0 if text is None else 1, found)
                if text is not None:
                    self.assertIn(text, found[0])


if __name__ == "__main__":
    unittest.main()
