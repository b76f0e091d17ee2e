"""Each term of the glossary names one thing in the code: one class, or one field of one."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[1] / "mirror"
DOCUMENT: Final = ROOT / "design" / "architecture.md"
_ROW: Final = re.compile(r"\| (?P<term>[^|]+) \| [^|]+ \| `(?P<code>[^|`]+)` \|")
_CLASS: Final = re.compile(r"^ *class (\w+)(?:[(:\[]|$)", re.MULTILINE)
_OF_DOCUMENTS: Final = "-"
"""What stands for the code of a term of documents only."""
_NAMED_BY_USERS: Final = ("cli/commands", "spark/jobs")
"""Folders whose modules are named as the commands and entry points that they are."""
_SAME_SENSE: Final = {
    "relay/task/periods.py",  # the periods of the task's results
    "spark/ledger/results.py",  # results, joined and stored
}
"""Modules elsewhere that are named as a term, and are about just that."""


class Term(NamedTuple):
    """One row of the glossary."""

    name: str
    code: str
    """``path/of/module.py:Class`` or ``path/of/module.py:Class.field``."""

    @property
    def module(self) -> str:
        return self.code.partition(":")[0]

    @property
    def symbol(self) -> tuple[str, str]:
        """The class and, unless it is empty, the field."""
        owner, _, field = self.code.partition(":")[2].partition(".")
        return owner, field

    @property
    def words(self) -> list[str]:
        return re.split(r"[ -]", self.name)


def terms() -> list[Term]:
    """Return the rows of the first table behind the heading of the glossary."""
    section = DOCUMENT.read_text().partition("\n## Glossary\n")[2].partition("\n## ")[0]
    return [Term(row["term"], row["code"]) for row in _ROW.finditer(section)]


TERMS: Final = terms()
IN_CODE: Final = [term for term in TERMS if term.code != _OF_DOCUMENTS]


# Not while the tests are collected: each worker of the suite collects all tests.
@functools.cache
def _modules() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in sorted(ROOT.rglob("*.py"))}


@functools.cache
def _classes() -> dict[str, list[str]]:
    """Return the modules that define a class, by its name: by their lines, as to parse all modules takes seconds."""
    found = defaultdict(list)
    for path, text in _modules().items():
        for name in _CLASS.findall(text):
            found[name].append(path)
    return found


def _names_in(module: str, owner: str) -> set[str]:
    """Return the names of the fields and methods of a class."""
    (body,) = (
        node.body
        for node in ast.walk(ast.parse(_modules()[module]))
        if isinstance(node, ast.ClassDef) and node.name == owner
    )
    names: set[str] = set()
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            case _:
                pass
    return names


def test_the_glossary_is_read() -> None:
    assert len(TERMS) > 30
    assert len({term.name for term in TERMS}) == len(TERMS)


@pytest.mark.parametrize("term", IN_CODE, ids=lambda term: term.name)
def test_a_term_names_one_class_or_one_field(term: Term) -> None:
    owner, field = term.symbol
    assert _classes()[owner] == [term.module], f"the class of {term.name!r} is not the only one of its name"
    if field:
        assert field in _names_in(term.module, owner), term


@pytest.mark.parametrize("term", IN_CODE, ids=lambda term: term.name)
def test_no_other_class_has_the_name_of_a_term(term: Term) -> None:
    name = "".join(word.capitalize() for word in term.words)
    others = [path for path in _classes().get(name, []) if (name, path) != (term.symbol[0], term.module)]
    assert others == [], f"{name} means the {term.name} of {term.code}: give the class another name"


@pytest.mark.parametrize("term", IN_CODE, ids=lambda term: term.name)
def test_no_module_elsewhere_has_the_name_of_a_term(term: Term) -> None:
    name = "_".join(term.words)
    own = str(Path(term.module).parent)
    others = [
        path
        for path in _modules()
        if Path(path).stem in {name, f"{name}s"}
        and str(Path(path).parent) not in {own, *_NAMED_BY_USERS}
        and path not in _SAME_SENSE
    ]
    assert others == [], f"{name} means the {term.name} of {term.code}: name the module by what it does"
