"""How a key is written: as a path in the file, as an environment variable, as a secret's file name.

A *path* is the key's place, level by level: ``("clusters", "paris", "bootstrap.servers")``. In the environment it is
``MIRROR_CLUSTERS__PARIS__BOOTSTRAP_SERVERS``: upper case, ``.`` and ``-`` as ``_``, levels joined by ``__``. That way
of writing loses information, so a variable is never taken apart: every path that exists is written as its variable,
and the variable is looked up among those.
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

OWN: Final = frozenset({"MIRROR_DEBUG", "MIRROR_KAFKA_HOME", "MIRROR_LOG_FORMAT", "MIRROR_SECRETS_DIR"})
"""Variables of this program that are no key's."""

_OWN: Final = ("MIRROR_JOB_", *(f"MIRROR_{kind}_" for kind in ("BENCH", "CAMPAIGN", "E2E", "FAULTS", "FUZZ")))
"""How others begin: those that the command line sets for Spark's processes, and those of the tests."""

_SERVICE_LINK: Final = re.compile(r"MIRROR_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_SECRET: Final = re.compile(
    r"passw|pwd|passphrase|secret|token|jaas|credential|private[._-]?key|keystore[._-]key", re.IGNORECASE
)


def dotted(path: Iterable[str]) -> str:
    """``path`` as TOML writes it: ``clusters.paris."bootstrap.servers"``."""
    return ".".join(part if _BARE_KEY.fullmatch(part) else '"' + printable(part) + '"' for part in path)


def level_name(part: str) -> str:
    """One level of a path as a variable writes it: ``sasl.password`` -> ``SASL_PASSWORD``."""
    return part.replace(".", "_").replace("-", "_").upper()


def variable(path: KeyPath) -> str:
    """The environment variable that overrides ``path``."""
    return PREFIX + LEVEL.join(level_name(part) for part in path)


def is_secret(path: KeyPath) -> bool:
    """Whether a value at ``path`` must never be shown, judged by the keys on the way to it, misspelt ones too.

    The name that the user gave a cluster or flow says nothing about the values in it.
    """
    keys = path[2:] if len(path) > 2 and path[0] in {"clusters", "flows"} else path  # noqa: PLR2004 - section and name
    return any(_SECRET.search(part) for part in keys)


def suggestion(name: str, known: Iterable[str]) -> str:
    """``; did you mean ...?`` when a known name is near to ``name``, else nothing."""
    near = nearest(name, known)
    return f'; did you mean "{near}"?' if near else ""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` is most likely a slip of; None where none is near."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def is_own(name: str) -> bool:
    """Whether the variable ``name`` belongs to this program, and is no key's."""
    return name in OWN or name.startswith(_OWN)


def is_service_link(name: str) -> bool:
    """Whether Kubernetes sets the variable ``name``, in every pod beside a service whose name begins with "mirror".

    Spark's own service of the driver's pod is one, where the application is called "mirror".
    """
    return _SERVICE_LINK.fullmatch(name) is not None


class Variables:
    """The environment variables that mean something for one configuration, and the paths they mean."""

    def __init__(self, paths: Iterable[KeyPath]) -> None:
        self._paths: dict[str, list[KeyPath]] = defaultdict(list)
        for path in paths:
            self._paths[variable(path)].append(path)

    def paths(self, name: str) -> tuple[KeyPath, ...]:
        """The paths that the variable ``name`` (any case) may mean: none if unknown, several if ambiguous."""
        return tuple(self._paths.get(name.upper(), ()))

    def names(self) -> tuple[str, ...]:
        """Every variable that means something."""
        return tuple(self._paths)
