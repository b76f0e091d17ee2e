"""The check of the documents' links finds what is broken, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.links import ROOT, broken_links, main, markdown_files

OTHER = '# Other: `mirror plan`, & more\n## Twice\n## Twice\n<a id="here"></a>\n'


def broken(folder: Path, text: str) -> list[str]:
    (folder / "docs").mkdir()
    (folder / "docs" / "other.md").write_text(OTHER, encoding="utf-8")
    (folder / "picture.svg").touch()
    file = folder / "README.md"
    file.write_text(text, encoding="utf-8")
    return list(broken_links(file, folder))


@pytest.mark.parametrize(
    "link",
    [
        "docs/other.md",
        "docs",
        "docs/",
        "docs/other.md#other-mirror-plan--more",
        "docs/other.md#twice",
        "docs/other.md#twice-1",
        "docs/other.md#here",
        "#title",
        "https://nowhere.invalid/no.md#none",
        "mailto:a@b.invalid",
    ],
)
def test_link_that_resolves_is_accepted(link: str, tmp_path: Path) -> None:
    assert broken(tmp_path, f"# Title\nA [link]({link}).\n") == []


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ("docs/othr.md", "there is no docs/othr.md"),
        ("docs/other.md#twice-2", "docs/other.md has no heading #twice-2; did you mean #twice-1?"),
        ("#tittle", "README.md has no heading #tittle; did you mean #title?"),
        ("picture.svg#x", "picture.svg has no heading #x"),
        ("/docs/other.md", "an absolute path; write it relative to this file"),
        ("../other.md", "outside the project"),
    ],
)
def test_link_that_leads_nowhere_is_named_with_its_line(link: str, why: str, tmp_path: Path) -> None:
    assert broken(tmp_path, f"# Title\n\nA [link]({link}).\n") == [f"README.md:3: broken link {link}: {why}"]


def test_links_in_tables_pictures_and_html_are_checked(tmp_path: Path) -> None:
    text = '| a |\n|---|\n| [x](no-1) |\n\n![](no-2)\n\n<img src="no-3">\n\n<source srcset="no-4">\n'
    assert [line.split(": ")[1] for line in broken(tmp_path, text)] == [f"broken link no-{n}" for n in range(1, 5)]


def test_links_in_code_are_not_checked(tmp_path: Path) -> None:
    assert broken(tmp_path, "```\n[x](no)\n```\n`[y](no)`\n") == []


def test_hidden_and_generated_folders_are_left_out(tmp_path: Path) -> None:
    for name in ("a", ".hidden", "build"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.md").touch()
    assert list(markdown_files(tmp_path)) == [tmp_path / "a" / "x.md"]


def test_documents_of_the_project_have_no_broken_link(capsys: pytest.CaptureFixture[str]) -> None:
    assert ROOT / "README.md" in markdown_files(ROOT)
    assert (main([]), capsys.readouterr().err) == (0, "")
