"""Threads of the product have a name that begins with ``mirror-``: in a dump, and for the check in conftest.py."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parents[1] / "mirror"
_NAME_OF: Final = {"Thread": "name", "InheritableThread": "name", "ThreadPoolExecutor": "thread_name_prefix"}
"""What starts threads, and the argument that names them."""


def _unnamed(text: str) -> Iterator[int]:
    """Yield the lines of a module that start threads without a name."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            named = {one.arg for one in node.keywords} | ({"thread_name_prefix"} if len(node.args) > 1 else set())
            if called in _NAME_OF and _NAME_OF[called] not in named:
                yield node.lineno


def test_each_thread_of_the_product_has_a_name() -> None:
    texts = {path: path.read_text("utf-8") for path in _ROOT.rglob("*.py")}
    found = {
        f"{path.relative_to(_ROOT)}:{line}"
        for path, text in texts.items()
        if any(name in text for name in _NAME_OF)
        for line in _unnamed(text)
    }
    assert found == set()


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("threading.Thread(target=run, daemon=True)", False),
        ("Thread(target=run, name='mirror-x')", True),
        ("ThreadPoolExecutor(3)", False),
        ("ThreadPoolExecutor(3, 'mirror-x')", True),
    ],
)
def test_what_starts_a_thread_is_recognized(line: str, named: bool) -> None:
    assert bool(list(_unnamed(line))) is not named
