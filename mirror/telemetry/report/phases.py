"""Where the time went: what each phase means, and what it says where it takes most of a copy's time. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from mirror.relay.model.ranges import RangeResult
from mirror.relay.model.timeline import CopyPhase
from mirror.telemetry.report.findings import active_ms

MEANINGS: Final[dict[str, str]] = {
    CopyPhase.FENCING: "shutting out earlier attempts, and reading the progress",
    CopyPhase.RESOLVING_PROGRESS: "finding out whether progress was forgotten, where there is none",
    CopyPhase.FETCHING: "waiting for the source, which has more",
    CopyPhase.MEMORY: "waiting for room in buffer.memory, or in what may be under way to the target",
    CopyPhase.PRODUCING: "waiting for the target's acknowledgements",
    CopyPhase.COMMITTING: "waiting for the end of a transaction, or of a commit of progress",
    CopyPhase.CHECKING_SOURCE: "finding out why the source does not have what comes next",
    CopyPhase.ABORTING: "dropping what was not committed",
    CopyPhase.BACKING_OFF: "waiting before it is tried again, after an expiry or a failure",
    CopyPhase.IDLE: "caught up: the source had nothing new",
}
"""In the order in which they are shown."""

_SAYS: Final[dict[str, str]] = {
    CopyPhase.FENCING: (
        "mostly shut out earlier attempts: the target's transaction coordinator is slow, or it waits for the markers of"
        " a transaction that was left open."
    ),
    CopyPhase.RESOLVING_PROGRESS: "mostly looked for forgotten progress: the target's brokers are slow to answer.",
    CopyPhase.FETCHING: (
        "mostly waited for the source. Its disks (a backlog is read from disk, not from memory), its network, a quota"
        ' or the flow\'s max-bytes-per-second is the limit; "fetch.max.bytes" under [flows.FLOW.consumer] may help over'
        " long distances."
    ),
    CopyPhase.MEMORY: (
        'mostly waited for room: the target takes less than the source gives. "buffer.memory" under'
        " [flows.FLOW.producer] helps only where it is small for so many partitions in a task."
    ),
    CopyPhase.PRODUCING: (
        "mostly waited for the target to acknowledge: its disks, its network or its slowest in-sync follower is the"
        " limit. Compare with partitions that other brokers lead."
    ),
    CopyPhase.COMMITTING: (
        "mostly waited for transactions to end: their coordinator, or a replica that it writes its markers to, is slow."
        " A longer commit-interval-ms under [flows.FLOW] makes fewer of them."
    ),
    CopyPhase.CHECKING_SOURCE: "mostly asked why the source does not have what comes next: see its leader changes.",
    CopyPhase.ABORTING: "mostly dropped what was not committed: see their expiries and retries.",
    CopyPhase.BACKING_OFF: "mostly waited to be tried again: see their expiries and retries.",
}
_PREVAILS: Final = 0.4


def in_all(partitions: Iterable[RangeResult]) -> dict[str, int]:
    """The time that all partitions spent in each phase, in ms, in the order of :data:`MEANINGS`."""
    spent = Counter[str]()
    for one in partitions:
        if one.story is not None:
            spent.update(one.story.phases)
    return {phase: spent[phase] for phase in [*MEANINGS, *(spent.keys() - MEANINGS.keys())] if spent[phase] > 0}


def _had_a_backlog(one: RangeResult) -> bool:
    story = one.story
    return story is not None and max(story.lag_before or 0, story.lag_after or 0) > 0


def of_the_slowest(flow: str, slow: Sequence[RangeResult]) -> list[str]:
    """What keeps the slowest, in words: one sentence for each phase that prevails in some of them."""
    prevailing = Counter[str]()
    for one in slow:
        spent = {phase: ms for phase, ms in (one.story.phases if one.story else {}).items() if phase != CopyPhase.IDLE}
        longest = max(spent, key=lambda phase: spent[phase], default="")
        if longest == CopyPhase.FETCHING and not _had_a_backlog(one):
            continue  # who waits for what is not written yet is not slow
        if longest in _SAYS and spent[longest] >= _PREVAILS * active_ms(one):
            prevailing[longest] += 1
    told = []
    for phase, count in prevailing.most_common():
        who = "It" if len(slow) == 1 else f"All {count}" if count == len(slow) else f"{count} of these {len(slow)}"
        told.append(f"{who} {_SAYS[phase].replace('FLOW', flow)}")
    return told
