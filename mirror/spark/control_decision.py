"""Decides what a run does about the control record of its flow. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from mirror.relay.progress.control_record import HEARTBEAT_INTERVAL_MS, RunControl, newest_attempts


class ControlDecision(NamedTuple):
    """What follows from a control record."""

    commit: RunControl | None = None
    """The record to commit, if there is anything to change."""
    fenced_by: RunControl | None = None
    """The record of another run that has taken over."""
    previous: RunControl | None = None
    """The record of the run that this one takes over from, which is not known to have ended."""
    took_back: RunControl | None = None
    """The record of a run that had the flow for a moment, and has ended."""
    stop: bool = False
    """Whether this run is to end, or has ended; False of one that has: its flow is to begin again."""


def decide(found: RunControl | None, wanted: RunControl, *, unix_ms: int) -> ControlDecision:
    """Compare the record ``found`` on the target with the one that a run wants there, which has claimed the flow.

    What another process has written into the run's record is kept: ``mirror stop`` commits all of a record that it has
    read a moment ago. So nothing of it goes back, and what it lacks of ``wanted`` is committed again. The record of a
    run that has ended is renewed, too, as long as a stream holds its flow: ``mirror stop --resume`` needs it.
    """
    if found is not None and fences(found, wanted):
        return ControlDecision(fenced_by=found)
    if wanted.ended and found is not None and found.ended and not found.stop:
        return ControlDecision()
    if found is None or found.run != wanted.run:
        if wanted.ended and found is not None:
            return ControlDecision(stop=True)
        is_ended = found is not None and found.ended
        return ControlDecision(
            replace(wanted, seen_ms=unix_ms),
            previous=None if is_ended else found,
            took_back=found if is_ended else None,
            stop=wanted.stop,
        )
    merged = replace(
        found,
        job=max(found.job, wanted.job),
        version=max(found.version, wanted.version),
        stop=found.stop or wanted.stop,
        ended=found.ended or wanted.ended,
        generation=max(found.generation, wanted.generation),
        attempts=newest_attempts(found.attempts + wanted.attempts),
    )
    # A time in the future is of before this host's clock was set back: tasks count for how long it does not change.
    is_young = 0 <= unix_ms - found.seen_ms < HEARTBEAT_INTERVAL_MS
    if merged != found or not is_young:
        return ControlDecision(replace(merged, seen_ms=unix_ms), stop=merged.stop)
    return ControlDecision(stop=merged.stop)


def fences(found: RunControl, wanted: RunControl) -> bool:
    """Whether the record ``found`` says that another run has taken over from the run of ``wanted``.

    A run that was replaced, and has not read that yet, may overwrite the record: its claim came before.
    """
    return found.other_run_active(wanted.run) and found.precedence > wanted.precedence
