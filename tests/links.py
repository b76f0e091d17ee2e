"""Check that every relative link in a Markdown file leads to a file that exists, and to a heading that it has.

    python -m tests.links [FILE ...]

Without arguments it checks all Markdown files of the project. ``make lint`` runs it. Links to other hosts are not
followed: the check needs no network. Prints a line for each broken link; the exit status is 1 if there are any.
"""

from __future__ import annotations

import difflib
import functools
import itertools
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT: Final = Path(__file__).parents[1]
_GENERATED: Final = frozenset({"build", "dist", "mirror-report", "htmlcov"})
_HTML_LINK: Final = re.compile(r'\b(?:href|src|srcset)="([^"]*)"')
_HTML_ANCHOR: Final = re.compile(r'\b(?:id|name)="([^"]*)"')
_NOT_IN_ANCHORS: Final = re.compile(r"[^\w\- ]")


def main(arguments: Sequence[str]) -> int:
    """Print the broken links of the files named in ``arguments``, or of all files. Returns the exit status."""
    files = [Path(argument).resolve() for argument in arguments] or list(markdown_files(ROOT))
    broken = [line for file in files for line in broken_links(file, ROOT)]
    for line in broken:
        sys.stderr.write(f"{line}\n")
    return 1 if broken else 0


def markdown_files(root: Path) -> Iterator[Path]:
    """All Markdown files under ``root``, without hidden and generated folders."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _GENERATED)
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(".md"))


def broken_links(file: Path, root: Path) -> Iterator[str]:
    """One line for each link in ``file`` that leads nowhere, or out of ``root``."""
    for number, link in _links(_tokens(file)):
        if why := _why_broken(link, file, root):
            yield f"{file.relative_to(root)}:{number}: broken link {link}: {why}"


def _why_broken(link: str, file: Path, root: Path) -> str | None:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    if parts.path.startswith("/"):
        return "an absolute path; write it relative to this file"
    path = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    if not path.is_relative_to(root):
        return "outside the project"
    if not path.exists():
        return f"there is no {path.relative_to(root)}"
    return _why_no_heading(parts.fragment, path, root) if parts.fragment else None


def _why_no_heading(fragment: str, path: Path, root: Path) -> str | None:
    anchors = _anchors(path) if path.suffix == ".md" else frozenset[str]()
    if unquote(fragment) in anchors:
        return None
    near = difflib.get_close_matches(fragment, sorted(anchors), n=1)
    hint = f"; did you mean #{near[0]}?" if near else ""
    return f"{path.relative_to(root)} has no heading #{fragment}{hint}"


def _links(tokens: Sequence[Token]) -> Iterator[tuple[int, str]]:
    """Line numbers, from 1, and targets; a line is that where the link's paragraph or table row begins."""
    for token in tokens:
        number = token.map[0] + 1 if token.map else 0
        for part in token.children or [token]:
            if part.type == "link_open":
                yield number, str(part.attrs["href"])
            elif part.type == "image":
                yield number, str(part.attrs["src"])
            elif part.type.startswith("html_"):
                yield from ((number, link) for link in _HTML_LINK.findall(part.content))


@functools.cache
def _anchors(path: Path) -> frozenset[str]:
    """What links may name in the Markdown file ``path``: its headings as GitHub names them, and anchors in HTML."""
    tokens = _tokens(path)
    found: dict[str, int] = {}
    for opening, heading in itertools.pairwise(tokens):
        if opening.type == "heading_open":
            text = "".join(part.content for part in heading.children or [] if part.type in {"text", "code_inline"})
            anchor = _NOT_IN_ANCHORS.sub("", text.strip().lower()).replace(" ", "-")
            found[anchor] = found.get(anchor, -1) + 1
    named = {anchor if not n else f"{anchor}-{n}" for anchor, count in found.items() for n in range(count + 1)}
    html = (part.content for token in tokens for part in token.children or [token] if part.type.startswith("html_"))
    return frozenset(named.union(*map(_HTML_ANCHOR.findall, html)))


@functools.cache
def _tokens(path: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
