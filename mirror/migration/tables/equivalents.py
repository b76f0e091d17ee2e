"""What becomes of the settings that have no key in our configuration, from ``equivalents.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Final, NamedTuple

from mirror.migration.findings import Kind


class Remark(NamedTuple):
    """What a setting means to MirrorMaker 2 and here, and what to do."""

    kind: Kind
    meaning: str
    action: str = ""


_FILE: Final = tomllib.loads((resources.files(__package__) / "equivalents.toml").read_text(encoding="utf-8"))


def _remarks(name: str) -> dict[str, Remark]:
    return {
        key: Remark(Kind(kind), *([given] if isinstance(given, str) else given))
        for kind, remarks in _FILE[name].items()
        for key, given in remarks.items()
    }


CONNECTOR: Final[Mapping[str, Remark]] = _remarks("connector")
"""Of a connector. The longest beginning that fits applies."""
WORKER: Final[Mapping[str, Remark]] = _remarks("worker")
"""Of a worker, and of the cluster that it writes to."""
CLIENT: Final[Mapping[str, Remark]] = _remarks("client")
"""Of a client that reads, writes or administers."""


def of_client(key: str) -> Remark:
    """Return the remark about a client's key that has no equivalent."""
    return remark(CLIENT, key) or CLIENT[""]


def remark(table: Mapping[str, Remark], key: str) -> Remark | None:
    """Return the remark about a key: that of the longest beginning that fits."""
    fits = [begin for begin in table if key.startswith(begin)]
    return table[max(fits, key=len)] if fits else None
