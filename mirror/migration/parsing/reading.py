"""Turns the bytes of a file into text and properties; one error where that is not possible."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from mirror.config.problems import plain
from mirror.errors import ConfigError
from mirror.migration.parsing.entries import Setting, Settings
from mirror.migration.parsing.properties import MalformedEscape, Property, parse

MAX_BYTES: Final = 1024 * 1024
"""A hundred clusters with all their flows take less."""
_MAX_PROPERTIES: Final = 5_000
_MAX_CLUSTERS: Final = 50
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


@dataclass(frozen=True, slots=True)
class PropertiesFile:
    """The properties of a file in their order, and by key: of a repeated key, the last."""

    lines: tuple[Property, ...]
    settings: Settings


def refuse(where: str, reason: str) -> ConfigError:
    """Return the error of a file that cannot be read."""
    return ConfigError([plain(where, "", reason)])


def check_text(data: bytes, where: str) -> None:
    """Raise ConfigError if ``data`` is too large, or no text in a single-byte encoding or UTF-8."""
    if len(data) > MAX_BYTES:
        raise refuse(where, f"larger than {MAX_BYTES >> 20} MiB: is this a configuration?")
    if data.startswith(_UTF16):
        raise refuse(where, "UTF-16 text; save it as UTF-8")
    if found := _CONTROL.search(data):
        raise refuse(where, f"not a text file: it has the byte 0x{found[0][0]:02x} at position {found.start()}")


def read_properties(data: bytes, where: str) -> PropertiesFile:
    """Return the properties in ``data``, read as Java reads them. Raises ConfigError that names the file ``where``."""
    check_text(data, where)
    try:
        lines = tuple(parse(data.decode("iso-8859-1")))
    except MalformedEscape as error:
        raise refuse(where, str(error)) from None
    if len(lines) > _MAX_PROPERTIES:
        raise refuse(where, f"has {len(lines)} properties, more than {_MAX_PROPERTIES}: is this a configuration?")
    settings = {entry.key: Setting(entry.value, entry.line, entry.key) for entry in lines}
    clusters = settings["clusters"].value.count(",") + 1 if "clusters" in settings else 0
    if clusters > _MAX_CLUSTERS:
        raise refuse(
            where, f"has {clusters} clusters, more than {_MAX_CLUSTERS}: split it, or leave out those not used"
        )
    return PropertiesFile(lines, settings)
