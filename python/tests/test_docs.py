"""The Python code of the pages runs, except for marked fragments."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

import memsaver

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(<!-- fragment: [^\n]+ -->\n)?```python\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", ["docs/python.md", "python/README.md"])
def test_page(page: str) -> None:
    programs = [code for fragment, code in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")) if not fragment]
    assert programs
    for program in programs:
        exec(compile(program, page, "exec"), {})


def test_the_package_says_what_runs() -> None:
    assert memsaver.__doc__
    program = textwrap.dedent("\n".join(re.findall(r"^    .*$", memsaver.__doc__, re.MULTILINE)))
    exec(program, {"memsaver": memsaver})


def test_everything_public_has_a_docstring() -> None:
    for name, public in vars(memsaver).items():
        if isinstance(public, type):
            assert public.__doc__, name
            for method, function in vars(public).items():
                if not method.startswith("_") and callable(function):
                    assert function.__doc__, f"{name}.{method}"
