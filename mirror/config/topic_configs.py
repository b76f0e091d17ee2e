"""The keys of a flow that say which configurations its target topics get. Pure."""

from __future__ import annotations

import re
from typing import Final

from mirror.config.problems import shown

_KEY: Final = re.compile(r"[A-Za-z0-9._-]+")

CONFIGS_INCLUDE: Final = (
    "cleanup.policy",
    "retention.(ms|bytes)",
    "delete.retention.ms",
    "(min|max).compaction.lag.ms",
    "min.cleanable.dirty.ratio",
    "segment.(ms|bytes|jitter.ms)",
    "max.message.bytes",
    "compression.type",
    "message.*",
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "(leader|follower).replication.throttled.replicas",
    "remote.*",
    "local.retention.*",
)
"""What a source may decide about the copy. Others cost the target's brokers, such as ``flush.messages`` and
``preallocate``, or are of a vendor, and what they do is not known."""
CONFIGS_EXCLUDE: Final = (
    "(leader|follower).replication.throttled.replicas",
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "message.timestamp.type",
    "message.timestamp.(before|after|difference).max.ms",
    "message.format.version",
    "remote.*",
    "local.retention.*",
)
"""What harms the target if it is the source's: config/README.md says why for each."""


def overrides(table: object) -> object:
    """Return the table of ``configs-overrides`` with its values as brokers show them. Raises ValueError."""
    if not isinstance(table, dict):
        return table  # the model reports it
    for key, value in table.items():
        if not _KEY.fullmatch(key):
            raise ValueError(f"{shown(key)} is not the name of a topic configuration")
        if not isinstance(value, str | int) or (isinstance(value, str) and not value.strip()):
            raise ValueError(f"the value of {shown(key)} must be a text, a number, true or false")
    return {key: _text(value) for key, value in table.items()}


def _text(value: str | int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value).strip()
    return text.lower() if text.lower() in {"true", "false"} else text
