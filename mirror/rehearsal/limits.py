"""Whether what has not arrived is within the limits. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mirror.groups.summary import counted
from mirror.rehearsal.values import Blocker, Kind, Rehearsal

_ACTION = "wait until the copy has caught up, or run the flow"


def over_limits(found: Rehearsal) -> Rehearsal:
    """Return the rehearsal with a blocker for each limit that is exceeded, or of which that is not known."""
    return replace(found, blockers=(*_over(found), *found.blockers))


def _over(found: Rehearsal) -> Iterator[Blocker]:
    limits, seconds = found.limits, found.seconds
    unknown = sum(one.records is None for one in found.backlogs)
    if limits.max_records is not None and (found.records > limits.max_records or unknown):
        reason = f"{counted(found.records, 'record')} have not arrived, and at most {limits.max_records:,} may not"
        if unknown:
            reason = f"of {counted(unknown, 'partition')} it is not known how many records have not arrived"
        yield Blocker(kind=Kind.LIMIT, name="--max-records", reason=reason, action=_ACTION)
    if limits.max_seconds is None:
        return
    if seconds is not None and seconds > limits.max_seconds:
        reason = f"the oldest record that has not arrived is {seconds:,.1f} s old, more than {limits.max_seconds:g} s"
    elif seconds is None or unknown or not found.ages_are_complete:
        reason = "the age of the oldest record that has not arrived is not known of all partitions"
    else:
        return
    yield Blocker(kind=Kind.LIMIT, name="--max-seconds", reason=reason, action=_ACTION)
