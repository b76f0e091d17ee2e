"""Checks of single values of a flow: each raises ValueError with the values that are valid."""

from __future__ import annotations

import re
from typing import Final

from pydantic import SecretStr

from mirror.config.patterns import checked_names
from mirror.config.problems import shown

_TOPIC_TEXT: Final = re.compile(r"[A-Za-z0-9._-]*")
"""``Topic.LEGAL_CHARS`` of Kafka's brokers."""
SLOWEST_BYTES_PER_SECOND: Final = 1024
"""At a lower rate, one batch of the usual maximum size would take a quarter of an hour."""

SMALLEST_SHARE_BYTES: Final = 65_536
"""The smallest share of ``max-bytes-per-run`` that a partition gets, if its backlog is not smaller: a fair batch."""


def not_zero(factor: int) -> int:
    """Check a replication factor. Raises ValueError."""
    if factor == 0:
        raise ValueError("must be -1 (the target's default) or a whole number from 1 to 32767")
    return factor


def no_limit_or_enough(limit: int) -> int:
    """Check a rate in bytes per second. Raises ValueError."""
    if 0 < limit < SLOWEST_BYTES_PER_SECOND:
        raise ValueError(f"must be 0 (no limit) or a whole number of bytes from {SLOWEST_BYTES_PER_SECOND}")
    return limit


def no_limit_or_a_batch(limit: int) -> int:
    """Check a number of bytes per epoch. Raises ValueError."""
    if 0 < limit < SMALLEST_SHARE_BYTES:
        raise ValueError(f"must be 0 (no limit) or a whole number of bytes from {SMALLEST_SHARE_BYTES}")
    return limit


def function_name(name: str) -> str:
    """Check the name of a transform. Raises ValueError."""
    module, colon, function = name.partition(":")
    if name and not (colon and all(part.isidentifier() for part in [*module.split("."), function])):
        raise ValueError('must be a function as "package.module:function", or "" for none')
    return name


def record_headers(table: object) -> object:
    """Check the whole table, without showing a wrong value in the error: it may be a secret."""
    for name, value in table.items() if isinstance(table, dict) else ():
        if not isinstance(value, str | SecretStr):
            raise ValueError(f"the value of {shown(name)} must be text in quotes")  # noqa: TRY004 - as pydantic wants it
        try:
            (name + text_of(value)).encode()
        except UnicodeEncodeError:
            raise ValueError(f"{shown(name)} and its value must be text that UTF-8 can encode") from None
    return table


def topic_names(table: dict[str, str]) -> dict[str, str]:
    """Check the table ``names`` of a flow. Raises ValueError with the first rule that is wrong."""
    for template in checked_names(table).values():
        if not template or not _TOPIC_TEXT.fullmatch(template.replace("${1}", "").replace("$1", "")):
            raise ValueError(f"{shown(template)}: a topic's name is made of letters, digits, '.', '_' and '-'")
    return table


def text_of(value: str | SecretStr) -> str:
    """Return the text itself, also of a secret."""
    return value.get_secret_value() if isinstance(value, SecretStr) else value
