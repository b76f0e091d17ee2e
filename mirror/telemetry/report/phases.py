"""Explains where the time went: what each phase means, and which bottleneck it shows if it takes most time. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from mirror.relay.model.ranges import RangeResult
from mirror.relay.model.timeline import CopyPhase
from mirror.telemetry.report.findings import active_ms

MEANINGS: Final[dict[str, str]] = {
    CopyPhase.FENCING: "fencing earlier attempts, and reading the committed progress",
    CopyPhase.RESOLVING_PROGRESS: "finding out why there is no committed progress",
    CopyPhase.FETCHING: "waiting for the source, which has more records",
    CopyPhase.MEMORY: "waiting for space in buffer.memory, or for the limit of bytes in flight to the target",
    CopyPhase.PRODUCING: "waiting for the target's acknowledgements",
    CopyPhase.COMMITTING: "waiting for the end of a transaction, or for a commit of progress",
    CopyPhase.CHECKING_SOURCE: "finding out why the source does not have the next offset",
    CopyPhase.ABORTING: "aborting a transaction that cannot be committed",
    CopyPhase.BACKING_OFF: "waiting for the backoff before a retry, after an expiry or a failure",
    CopyPhase.IDLE: "caught up: the source had no new records",
}
"""In the order in which they are shown."""

_EXPLANATIONS: Final[dict[str, str]] = {
    CopyPhase.FENCING: (
        "spent most time fencing earlier attempts: the target's transaction coordinator is slow, or it waits for the"
        " markers of a transaction that was left open."
    ),
    CopyPhase.RESOLVING_PROGRESS: "spent most time searching for progress: the target's brokers respond slowly.",
    CopyPhase.FETCHING: (
        "spent most time waiting for the source. The bottleneck is its disks (a backlog is read from disk, not from"
        ' memory), its network, a quota, or the flow\'s max-bytes-per-second. A larger "fetch.max.bytes" under'
        " [flows.FLOW.consumer] may help over long distances."
    ),
    CopyPhase.MEMORY: (
        "spent most time waiting for space: the target accepts fewer records than the source sends. A larger"
        ' "buffer.memory" under [flows.FLOW.producer] helps only if it is small for the number of partitions per task.'
    ),
    CopyPhase.PRODUCING: (
        "spent most time waiting for the target's acknowledgements: the bottleneck is its disks, its network, or its"
        " slowest in-sync follower. Compare with partitions that other brokers lead."
    ),
    CopyPhase.COMMITTING: (
        "spent most time waiting for transactions to end: their coordinator, or a replica to which it writes its"
        " markers, is slow. A longer commit-interval-ms under [flows.FLOW] makes fewer transactions."
    ),
    CopyPhase.CHECKING_SOURCE: (
        "spent most time finding out why the source does not have the next offset: see the source's leader changes."
    ),
    CopyPhase.ABORTING: "spent most time aborting transactions: see the expiries and retries.",
    CopyPhase.BACKING_OFF: "spent most time waiting for retries: see the expiries and retries.",
}
_DOMINANT_SHARE: Final = 0.4


def time_by_phase(partitions: Iterable[RangeResult]) -> dict[str, int]:
    """Return the time that all partitions spent in each phase, in ms, in the order of :data:`MEANINGS`."""
    spent = Counter[str]()
    for result in partitions:
        if result.timeline is not None:
            spent.update(result.timeline.phases)
    return {phase: spent[phase] for phase in [*MEANINGS, *(spent.keys() - MEANINGS.keys())] if spent[phase] > 0}


def _had_backlog(result: RangeResult) -> bool:
    timeline = result.timeline
    return timeline is not None and max(timeline.lag_before or 0, timeline.lag_after or 0) > 0


def explain_slowest(flow: str, slow: Sequence[RangeResult]) -> list[str]:
    """Return one explanation for each phase that takes most of the time of some of the slowest partitions."""
    dominant = Counter[str]()
    for result in slow:
        phases = result.timeline.phases if result.timeline else {}
        spent = {phase: ms for phase, ms in phases.items() if phase != CopyPhase.IDLE}
        longest = max(spent, key=lambda phase: spent[phase], default="")
        if longest == CopyPhase.FETCHING and not _had_backlog(result):
            continue  # waiting for records that are not written yet is not slow
        if longest in _EXPLANATIONS and spent[longest] >= _DOMINANT_SHARE * active_ms(result):
            dominant[longest] += 1
    texts = []
    for phase, count in dominant.most_common():
        subject = "It" if len(slow) == 1 else f"All {count}" if count == len(slow) else f"{count} of these {len(slow)}"
        texts.append(f"{subject} {_EXPLANATIONS[phase].replace('FLOW', flow)}")
    return texts
