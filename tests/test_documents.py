"""The documents stay short, and what the pages about the design name exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
DESIGN: Final = ROOT / "mirror" / "design"
DECISIONS: Final = DESIGN / "decisions"
MOST_WORDS: Final = {
    "README.md": 900,
    "CONTRIBUTING.md": 800,
    "config/README.md": 4_000,
    "config/dashboards/README.md": 1_250,
    "config/kubernetes/README.md": 500,
    "jobs/FAILBACK.md": 500,
    "jobs/INSTALL.md": 700,
    "jobs/MONITORING.md": 1_500,
    "jobs/POSITIONS.md": 500,
    "jobs/README.md": 5_000,
    "jobs/RUNBOOKS.md": 1_200,
    "jobs/SWITCH.md": 1_800,
    "jobs/TRIED.md": 60,
    "mirror/README.md": 2_100,
    "mirror/design/README.md": 300,
    "mirror/design/architecture.md": 3_500,
    "mirror/design/exactly-once.md": 2_000,
    "mirror/design/limits.md": 700,
    "mirror/migration/README.md": 2_500,
    "tests/README.md": 2_000,
}
"""Of what people write; what is made from the code does not count."""
MOST_OF_A_DECISION: Final = 260
MOST_UNRELEASED: Final = 800
MOST_OF_A_RELEASE: Final = 300
_GENERATED: Final = re.compile(
    r"<!-- ([^\n]*): begin -->.*?<!-- \1: end -->|<!-- from here: made by .*?<!-- to here -->", re.DOTALL
)
_PATH: Final = re.compile(r"(?<![\w./-])([\w/-]+(?:\.py|\.sh|/))(?![\w/-])")
_CODE_SPAN: Final = re.compile(r"`([^`\n]+)`")


def words(text: str) -> int:
    """How many words of ``text`` are written by hand."""
    return len(_GENERATED.sub("", text).split())


def releases(changelog: str) -> dict[str, str]:
    """The sections of ``changelog`` by release."""
    _, *sections = re.split(r"^## ", changelog, flags=re.MULTILINE)
    return {section.split("\n", 1)[0]: section for section in sections}


def wrong_paths(text: str, root: Path) -> Iterator[str]:
    """Each module or folder in a code span of ``text`` that is not in ``root``; the end of a path suffices."""
    found = [
        *root.iterdir(),
        *(path for folder in ("mirror", "tests", "jobs", "config") for path in (root / folder).rglob("*")),
    ]
    paths = ["/" + path.relative_to(root).as_posix() + ("/" if path.is_dir() else "") for path in found]
    for span in _CODE_SPAN.findall(text):
        for named in _PATH.findall(span):
            if not any(path.endswith(f"/{named}") for path in paths):
                yield named


@pytest.mark.parametrize("name", MOST_WORDS)
def test_a_document_has_no_more_words_than_a_person_reads(name: str) -> None:
    assert words((ROOT / name).read_text("utf-8")) <= MOST_WORDS[name]


def test_each_document_of_the_design_is_bounded() -> None:
    pages = {f"mirror/design/{page.name}" for page in DESIGN.glob("*.md")}
    assert pages - MOST_WORDS.keys() == {"mirror/design/invariants.md"}


def test_the_sections_of_the_changelog_are_short() -> None:
    sections = releases((ROOT / "CHANGELOG.md").read_text("utf-8"))
    limits = {name: MOST_UNRELEASED if name == "Unreleased" else MOST_OF_A_RELEASE for name in sections}
    assert {name: words(text) for name, text in sections.items() if words(text) > limits[name]} == {}


def test_decisions_are_short_and_listed() -> None:
    listed = (DECISIONS / "README.md").read_text("utf-8")
    decisions = sorted(DECISIONS.glob("[0-9]*.md"))
    assert decisions
    assert [page.name for page in decisions if f"]({page.name})" not in listed] == []
    assert [page.name for page in decisions if words(page.read_text("utf-8")) > MOST_OF_A_DECISION] == []


@pytest.mark.parametrize("page", sorted(DESIGN.rglob("*.md")), ids=lambda page: page.stem)
def test_the_pages_about_the_design_name_only_modules_and_folders_that_exist(page: Path) -> None:
    assert list(wrong_paths(page.read_text("utf-8"), ROOT)) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("one two", 2),
        ("one\n<!-- keys: begin -->\nmade by code\n<!-- keys: end -->\ntwo", 2),
        ("one <!-- from here: made by `x` --> made by code <!-- to here --> two", 2),
        ("<!-- a: begin --> x <!-- a: end --> one <!-- b: begin --> y <!-- b: end -->", 1),
    ],
)
def test_only_what_is_written_by_hand_counts(text: str, count: int) -> None:
    assert words(text) == count


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`a/b.py`, `b.py`, `mirror/a/`, `a/`, `mirror/`, `a/b.py:Class`", []),
        ("`c/b.py`", ["c/b.py"]),
        ("`mirror/b.py` and `x/`", ["mirror/b.py", "x/"]),
        ("`.x.py` `x.pyx` x.py", []),
    ],
)
def test_module_that_does_not_exist_is_found(text: str, wrong: list[str], tmp_path: Path) -> None:
    (tmp_path / "mirror" / "a").mkdir(parents=True)
    (tmp_path / "mirror" / "a" / "b.py").touch()
    assert list(wrong_paths(text, tmp_path)) == wrong
