"""Topics that no flow reads or writes, whatever its configuration says. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from mirror.config.patterns import matches

_OF_BROKERS: Final = frozenset(
    {
        "__consumer_offsets",
        "__transaction_state",
        "__share_group_state",
        "__cluster_metadata",
        "__remote_log_metadata",
    }
)
"""To add a partition to the first one moves each group to another coordinator, where it has no offsets."""
_OF_FLOWS: Final = re.compile(
    r"(.+\.)?mirror-(producers|(progress|offsets|groups|inventory)\.[A-Za-z0-9_-]+(\.(latch|status|switch|takeover))?)\.internal"
)
"""The topics of flows, also as copies. Each record of a copy would make another one in the topic of the next flow."""
_ESCAPED: Final = re.compile(r"\\(.)")


def why_reserved(topic: str) -> str | None:
    """Return why no flow reads or writes ``topic``, on either side; None if it may."""
    if topic in _OF_BROKERS:
        return "its brokers keep their own records there"
    return "a flow keeps its own records there" if _OF_FLOWS.fullmatch(topic) else None


def reserved_in(pattern: str) -> str | None:
    """Return the reserved topic that the regular expression ``pattern`` spells out; None if it spells out none."""
    text = _ESCAPED.sub(r"\1", pattern)
    spelled: Iterable[str] = (text,) if _OF_FLOWS.fullmatch(text) else _OF_BROKERS
    return next((name for name in sorted(spelled) if name in text and matches((pattern,), name)), None)


def reserved_copy(pattern: str, target_topic: Callable[[str], str]) -> str | None:
    """Return the reserved name of the copy of the topic that ``pattern`` spells out; None if it is not reserved."""
    name = _ESCAPED.sub(r"\1", pattern)
    copy = target_topic(name)
    return copy if matches((pattern,), name) and why_reserved(copy) else None
