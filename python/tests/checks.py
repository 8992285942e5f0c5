"""Checks that most test files need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def fails(error: Any, text: str, call: Callable[..., object], *arguments: object, **named: object) -> None:
    """Expects a call to raise `error`, a type or several, with `text` (a regular expression) in its message."""
    with pytest.raises(error, match=text or None):
        call(*arguments, **named)
