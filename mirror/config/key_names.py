"""How a key is spelled: as a path in the file, as an environment variable, as a secret's file name.

A *path* is a key's place, level by level: ``("clusters", "paris", "bootstrap.servers")``. In the environment it is
``MIRROR_CLUSTERS__PARIS__BOOTSTRAP_SERVERS``: upper case, ``.`` and ``-`` as ``_``, levels joined by ``__``. This
spelling is ambiguous, so a variable is never parsed: every existing path is spelled as its variable, and the variable
is looked up among these.
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from mirror.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

KeyPath: TypeAlias = tuple[str, ...]
"""A key's place in the configuration, level by level."""

PREFIX: Final = "MIRROR_"
LEVEL: Final = "__"

OWN: Final = frozenset(
    {
        "MIRROR_CONFIG",
        "MIRROR_DEBUG",
        "MIRROR_KAFKA_HOME",
        "MIRROR_LOG_FORMAT",
        "MIRROR_SECRETS_DIR",
        "MIRROR_TRACE_SLOW_MS",
    }
)
"""Variables of this program that override no key."""

_OWN_PREFIXES: Final = ("MIRROR_JOB_", *(f"MIRROR_{kind}_" for kind in ("BENCH", "CAMPAIGN", "E2E", "FAULTS", "FUZZ")))
"""The beginnings of other such variables: the command line sets some for Spark's processes, the tests use others."""

_SERVICE_LINK: Final = re.compile(r"MIRROR_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_SECRET: Final = re.compile(
    r"passw|pwd|passphrase|secret|token|jaas|credential|private[._-]?key|keystore[._-]key", re.IGNORECASE
)


def dotted(path: Iterable[str]) -> str:
    """Return ``path`` as in TOML: ``clusters.paris."bootstrap.servers"``."""
    return ".".join(part if _BARE_KEY.fullmatch(part) else '"' + printable(part) + '"' for part in path)


def level_name(part: str) -> str:
    """Return one level of a path as in a variable: ``SASL_PASSWORD`` for ``sasl.password``."""
    return part.replace(".", "_").replace("-", "_").upper()


def variable(path: KeyPath) -> str:
    """Return the environment variable that overrides ``path``."""
    return PREFIX + LEVEL.join(level_name(part) for part in path)


def is_secret(path: KeyPath) -> bool:
    """Return whether the value at ``path`` must never be shown, by the names of its keys, misspelt ones included.

    The name that the user gave a cluster or flow does not count, nor do the places that a test copy masks.
    """
    keys = path[2:] if len(path) > 2 and path[0] in {"clusters", "flows"} else path  # noqa: PLR2004 - section and name
    keys = keys[:2] if keys[:2] == ("test-copy", "mask") else keys
    return any(_SECRET.search(part) for part in keys)


def suggestion(name: str, valid: Iterable[str]) -> str:
    """Return ``; did you mean ...?`` if a valid name is similar to ``name``, else an empty text."""
    near = nearest(name, valid)
    return f'; did you mean "{near}"?' if near else ""


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """Return the valid name that is most similar to ``name``; None if none is similar."""
    return next(iter(difflib.get_close_matches(name, list(valid), n=1)), None)


def is_own(name: str) -> bool:
    """Return whether the variable ``name`` belongs to this program, but overrides no key."""
    return name in OWN or name.startswith(_OWN_PREFIXES)


def is_service_link(name: str) -> bool:
    """Return whether ``name`` is a variable that Kubernetes sets in every pod for a service named "mirror...".

    Spark's own service for the driver's pod is one, if the application's name is "mirror".
    """
    return _SERVICE_LINK.fullmatch(name) is not None


class Variables:
    """The environment variables that override a key of one configuration, and the paths of these keys."""

    def __init__(self, paths: Iterable[KeyPath]) -> None:
        self._paths: dict[str, list[KeyPath]] = defaultdict(list)
        for path in paths:
            self._paths[variable(path)].append(path)

    def paths(self, name: str) -> tuple[KeyPath, ...]:
        """Return the paths that the variable ``name`` (in any case) stands for: several if it is ambiguous."""
        return tuple(self._paths.get(name.upper(), ()))

    def names(self) -> tuple[str, ...]:
        """Return every variable that overrides a key."""
        return tuple(self._paths)
