"""Advice for operators: what a problem of a partition means, and what to do about it. The texts are in a file.

``assets/advice.toml`` explains its form: it is read by people who know the problems, and need not know Python.
"""

from __future__ import annotations

import enum
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Final

from mirror.relay.progress.open_transactions import OpenTransaction


class Level(enum.StrEnum):
    """The severity of a problem, worst first."""

    CRITICAL = "critical"
    """The copy does not continue until an operator acts."""
    SERIOUS = "serious"
    """The copy stopped, and will be tried again."""
    WARNING = "warning"
    """Records are missing, late, or others than were copied."""
    NOTE = "note"
    """The copy recovered."""


@dataclass(frozen=True, slots=True)
class AdviceStep:
    """One thing to do, and its command if there is one."""

    text: str
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A problem: its title, what it means, and what to do about it."""

    level: Level
    title: str
    meaning: str
    steps: tuple[AdviceStep, ...]
    pattern: str = ""
    """A regular expression that the error of a partition with this problem matches; empty if no error shows it."""
    remark: str = ""
    """What else an operator has to know."""


_PLACEHOLDER: Final = re.compile(r"\b(FLOW|TOPIC|NUMBER)\b")
MAYBE_WRITTEN: Final = (
    "A batch that expired may have reached the target's log. With exactly once, its transaction is aborted, and"
    " consumers with isolation.level=read_committed never see it. With at least once, its records may be duplicated."
)
"""The remark if an expired batch may have been written."""


def _advice(fields: Mapping[str, Any], steps: Mapping[str, list[str]]) -> Advice:
    given = (steps[one] if isinstance(one, str) else one for one in fields["steps"])
    return Advice(
        level=Level(fields["level"]),
        title=fields["title"],
        meaning=_joined(fields["meaning"]),
        steps=tuple(AdviceStep(*map(_joined, one)) for one in given),
        pattern=fields.get("pattern", ""),
    )


def _joined(text: str) -> str:
    return " ".join(text.split())


def _read() -> dict[str, Advice]:
    tables = tomllib.loads((resources.files(__package__) / "assets" / "advice.toml").read_text(encoding="utf-8"))
    steps = tables.pop("steps")
    return {key: _advice(fields, steps) for key, fields in tables.items()}


ADVICE: Final[Mapping[str, Advice]] = _read()
"""By the key of the problem."""


def key_of(outcome: str, error: str) -> str:
    """Return the key of the problem of an ``outcome`` by its ``error``: of the first pattern that is in it."""
    patterns = ((key, one.pattern) for key, one in ADVICE.items() if key.startswith(f"{outcome} "))
    return next((key for key, pattern in patterns if pattern and re.search(pattern, error)), outcome)


def filled_in(general: Advice, flow: str, topic: str, target_topic: str, partition: int) -> Advice:
    """Return the advice with the names of a flow and of one of its partitions, so that commands can be run."""

    def fill_in(text: str) -> str:
        name = shlex.quote(topic if "$SOURCE" in text else target_topic)
        names = {"FLOW": flow, "TOPIC": name, "NUMBER": str(partition)}
        return _PLACEHOLDER.sub(lambda placeholder: names[placeholder[0]], text)

    steps = tuple(AdviceStep(fill_in(step.text), fill_in(step.command)) for step in general.steps)
    return replace(general, meaning=fill_in(general.meaning), steps=steps)


def withheld(transaction: OpenTransaction) -> Advice:
    """Return the advice about an open transaction of the source."""
    general = ADVICE["withheld"]
    find_producer, abort = general.steps
    return replace(general, steps=(find_producer, replace(abort, command=transaction.command("$SOURCE"))))


def expired(cause: str) -> Advice:
    """Return the advice about a partition whose batches expired because of ``cause``."""
    return ADVICE.get(f"expired {cause}", ADVICE["expired"])


def recovered(cause: str) -> Advice:
    """Return the advice about a partition whose batches expired because of ``cause`` and were delivered later."""
    general = expired(cause)
    return replace(
        general,
        level=Level.NOTE,
        title=f"Expired, and recovered: {cause}",
        meaning=f"Batches expired, and a later attempt copied them: no records are missing. {general.meaning}",
        steps=(
            general.steps[0],
            AdviceStep("If it happens again, see the partition's page: it lists every expiry with all its details."),
        ),
    )
