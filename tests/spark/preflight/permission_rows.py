"""The table of permissions in config/README.md, made from the table that the check uses.

python -m tests.spark.preflight.permission_rows     # writes it again
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mirror.client import AclOperation
from mirror.spark.preflight.permission_table import NOT_LOOKED_UP, PERMISSIONS
from mirror.spark.preflight.permissions import Kind, Permission, name_of
from tests.generated_blocks import table, with_block

DOCUMENT: Final = Path(__file__).parents[3] / "config" / "README.md"
_IMPLY_DESCRIBE: Final = {AclOperation.READ, AclOperation.WRITE, AclOperation.ALTER, AclOperation.DELETE}
_HEAD: Final = ("cluster", "resource", "operations", "needed for", "without them", "refused", "known since")


def with_table(text: str) -> str:
    """Return the document's ``text`` with the present table."""
    return with_block(text, "permissions", table(_HEAD, rows()))


def rows() -> list[tuple[str, ...]]:
    """Return a row for each permission, those on the same resources one after the other."""
    on: dict[tuple[str, str], list[Permission]] = {}
    for one in (*PERMISSIONS, *NOT_LOOKED_UP):
        on.setdefault((one.resource.side, one.resource.words), []).append(one)
    places = sorted(on, key=lambda place: place[0])
    return [_row(one, also=one is on[place][0]) for place in places for one in on[place]]


def _row(one: Permission, *, also: bool) -> tuple[str, ...]:
    """Return the cells; ``also``: it is the first row about its resources."""
    operations = [*one.operations, *(one.resource.also if also else ())]
    if one.resource.kind is not Kind.BROKERS and not _IMPLY_DESCRIBE.intersection(operations):
        operations = list(dict.fromkeys([AclOperation.DESCRIBE, *operations]))
    since = one.resource.kind.since if one in PERMISSIONS else "-"
    names = ", ".join(map(name_of, operations))
    return one.resource.side, one.resource.words, names, one.when.words, one.why, one.refuses.value, since


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text("utf-8")), "utf-8")
