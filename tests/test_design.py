"""Everything that mirror/DESIGN.md names exists: tests and modules."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
DESIGN: Final = ROOT / "mirror" / "DESIGN.md"
_CITED_TEST: Final = re.compile(r"\btests/[\w/]+\.py::\w+")
_PATH: Final = re.compile(r"(?<![\w./-])([\w/-]+(?:\.py|\.sh|/))(?![\w/-])")
_CODE_SPAN: Final = re.compile(r"`([^`\n]+)`")
_FOLDER_ROW: Final = re.compile(r"\| `([\w/]+/)` \|")
_SUGGESTIONS: Final = 2
_SIMILARITY: Final = 0.5


def wrong_citations(text: str, root: Path) -> Iterator[str]:
    """One line for each test that ``text`` cites and that does not exist, with the names that it may have now."""
    tests = [
        f"{file.relative_to(root).as_posix()}::{name}"
        for file in sorted(root.glob("tests/**/test_*.py"))
        for name in re.findall(r"^ *(?:async )?def (test_\w+)\(", file.read_text("utf-8"), re.MULTILINE)
    ]
    for cited in _CITED_TEST.findall(text):
        if cited not in tests:
            near = difflib.get_close_matches(cited, tests, n=_SUGGESTIONS, cutoff=_SIMILARITY)
            yield f"{cited} does not exist" + (f"; did you mean {' or '.join(near)}?" if near else "")


def wrong_paths(text: str, root: Path) -> Iterator[str]:
    """One line for each module or folder in a code span of ``text`` that is not in ``root``.

    The end of a path suffices. In a row of a table that begins with a folder, a name without a folder belongs to that.
    """
    found = [
        *root.iterdir(),
        *(path for folder in ("mirror", "tests", "jobs", "config") for path in (root / folder).rglob("*")),
    ]
    paths = ["/" + path.relative_to(root).as_posix() + ("/" if path.is_dir() else "") for path in found]
    for line in _CITED_TEST.sub("", text).splitlines():
        row = _FOLDER_ROW.match(line)
        for span in _CODE_SPAN.findall(line):
            for named in _PATH.findall(span):
                wanted = row[1] + named if row and "/" not in named else named
                if not any(path.endswith(f"/{wanted}") for path in paths):
                    yield wanted


def test_design_cites_only_tests_that_exist() -> None:
    assert list(wrong_citations(DESIGN.read_text("utf-8"), ROOT)) == []


def test_design_names_only_modules_and_folders_that_exist() -> None:
    assert list(wrong_paths(DESIGN.read_text("utf-8"), ROOT)) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`tests/a/test_b.py::test_c`", []),
        (
            "`tests/a/test_b.py::test_cc`",
            ["tests/a/test_b.py::test_cc does not exist; did you mean tests/a/test_b.py::test_c?"],
        ),
        (
            "`tests/test_b.py::test_c`",
            ["tests/test_b.py::test_c does not exist; did you mean tests/a/test_b.py::test_c?"],
        ),
        ("`tests/q.py::zzzzzzzzzzzzzzzzzzzz`", ["tests/q.py::zzzzzzzzzzzzzzzzzzzz does not exist"]),
    ],
)
def test_cited_test_that_does_not_exist_is_found_with_a_suggestion(text: str, wrong: list[str], tmp_path: Path) -> None:
    (tmp_path / "tests" / "a").mkdir(parents=True)
    (tmp_path / "tests" / "a" / "test_b.py").write_text("def test_c() -> None: ...\n")
    assert list(wrong_citations(text, tmp_path)) == wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`a/b.py`, `b.py`, `mirror/a/`, `a/`, `mirror/`", []),
        ("`c/b.py`", ["c/b.py"]),
        ("`mirror/b.py` and `x/`", ["mirror/b.py", "x/"]),
        ("`.x.py` `x.pyx` x.py", []),
        ("| `a/` | `b.py` |", []),
        ("| `mirror/` | `b.py`, `a/b.py` |", ["mirror/b.py"]),
    ],
)
def test_module_that_does_not_exist_is_found(text: str, wrong: list[str], tmp_path: Path) -> None:
    (tmp_path / "mirror" / "a").mkdir(parents=True)
    (tmp_path / "mirror" / "a" / "b.py").touch()
    assert list(wrong_paths(text, tmp_path)) == wrong
