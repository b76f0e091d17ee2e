"""A finding of ``mirror doctor``: what was found and where, why it matters, and what to do. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from mirror.causes import CAUSES, Cause
from mirror.errors import KafkaTimeout

HOST: Final = "this host"
_AROUND: Final = " :;("


class Severity(enum.StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """A flow fails or cannot run."""
    WARNING = "warning"
    """A flow may fail, or its copies are not what is expected."""
    NOTE = "note"
    """It is good to know."""
    OK = "ok"
    """Nothing is wrong with what was checked."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the diagnosis."""

    severity: Severity
    where: str
    """``this host``, ``cluster NAME`` or ``flow NAME``."""
    what: str
    why: str = ""
    """Empty if ``what`` says it, too."""
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        """Return it as JSON values."""
        return {
            "severity": str(self.severity),
            "where": self.where,
            "what": self.what,
            "why": self.why,
            "remedy": self.remedy,
        }


def of_cause(severity: Severity, where: str, what: str, cause: Cause) -> Finding:
    """Return a finding with the words of its cause."""
    return Finding(severity, where, what, cause.effect, cause.remedy)


def of_error(severity: Severity, where: str, error: BaseException, otherwise: Cause) -> Finding:
    """Return the finding of an error of a client; ``otherwise`` is its cause if its text has none.

    Of a timeout it is the error for which the last attempt failed.
    """
    while isinstance(error, KafkaTimeout) and error.__cause__ is not None:
        error = error.__cause__
    return of_line(severity, where, str(error), otherwise)


def of_line(severity: Severity, where: str, line: str, otherwise: Cause | None = None) -> Finding:
    """Return the finding of a line that a run would print, divided where the words of a cause begin."""
    for cause in CAUSES:
        before, words, after = line.partition(cause.words)
        if not words:
            before, words, after = line.partition(f"; {cause.remedy}")
        if not words:
            continue
        what = before.removesuffix("(perhaps ").rstrip(_AROUND)
        after = after.removeprefix(")")
        if cause.is_observation or not what:
            what = f"{what}: {cause.effect}" if what else cause.effect
            return Finding(severity, where, what, "", cause.remedy + after)
        return Finding(severity, where, what, cause.effect, cause.remedy + after)
    return Finding(severity, where, line) if otherwise is None else of_cause(severity, where, line, otherwise)
