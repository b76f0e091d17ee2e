"""What is to be said about a line of a MirrorMaker 2 file: what it means, and what to do."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mirror.migration.parsing.entries import Setting, shown


class Kind(enum.StrEnum):
    """The kinds of findings; the first four also concern those who stay with MirrorMaker 2."""

    REFUSED = "refused"
    """MirrorMaker 2 does not start with it."""
    OTHER_EFFECT = "other effect"
    """It has another effect than its writer probably means."""
    DANGEROUS = "dangerous"
    """It, or the default that applies without it, may lose, repeat or change data, or settings of topics."""
    IGNORED = "ignored"
    """MirrorMaker 2 ignores it without a word."""
    LEFT_OUT = "left out"
    """A flow or a table is not written because of it."""
    TO_DO = "to do"
    """The written configuration needs something that only its user can give."""
    NO_EQUIVALENT = "no equivalent"
    """It is not in the written configuration, because nothing here has its effect."""
    CHANGED = "changed"
    """It is in the written configuration, and has a somewhat different effect there."""
    NOT_NEEDED = "not needed"
    """It is not in the written configuration, because nothing is missing without it."""


OF_LINT = frozenset({Kind.REFUSED, Kind.OTHER_EFFECT, Kind.DANGEROUS, Kind.IGNORED})


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. ``line`` is 0 if it is about a default or the whole file; ``value`` may be printed."""

    kind: Kind
    line: int
    key: str
    value: str
    meaning: str
    action: str

    def __str__(self) -> str:
        value = f" = {self.value}" if self.value else ""
        place = f"line {self.line}: " if self.line else ""
        action = f"; {self.action}" if self.action else ""
        return f"{place}{self.key}{value}: {self.meaning}{action}"


def about(kind: Kind, setting: Setting, meaning: str, action: str = "") -> Finding:
    """Return a finding about a setting; if that is a default, the finding says so."""
    return Finding(kind, setting.line, shown("", setting.key), setting.shown() + default_mark(setting), meaning, action)


def default_mark(setting: Setting) -> str:
    """Return a remark if the setting is a default, else an empty text."""
    return "" if setting.line else " (MirrorMaker 2's default)"


def ordered(findings: list[Finding]) -> list[Finding]:
    """Return the findings once each, by kind and line."""
    kinds = list(Kind)
    return sorted(dict.fromkeys(findings), key=lambda one: (kinds.index(one.kind), one.line, one.key))
