"""The keys that MirrorMaker 2 of Apache Kafka 4.3 knows, and their defaults, from ``mirrormaker_keys.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Final

_FILE: Final = tomllib.loads((resources.files(__package__) / "mirrormaker_keys.toml").read_text(encoding="utf-8"))


def _names(name: str) -> frozenset[str]:
    return frozenset(_FILE[name].split())


CLIENT: Final = _names("client")
"""The keys by which its clients connect (``MirrorClientConfig``)."""
_COMMON: Final = _names("common") | (CLIENT - {"bootstrap.servers"})
SOURCE: Final = _COMMON | _names("source")
CHECKPOINT: Final = _COMMON | _names("checkpoint")
HEARTBEAT: Final = _COMMON | _names("heartbeat")
CONNECTORS: Final = SOURCE | CHECKPOINT | HEARTBEAT
"""The keys that are read at top level and after ``A->B.``."""
CONNECTOR_PREFIXES: Final = tuple(_FILE["connector-prefixes"].split())
"""The beginnings of keys that a connector reads beside these."""
FORMER: Final[Mapping[str, str]] = _FILE["former"]
"""The present names of keys that MirrorMaker 2 does not read any more, or never did."""
DEFAULTS: Final[Mapping[str, str]] = _FILE["defaults"]
"""The defaults of the connectors' own keys, where they have one, as text."""
