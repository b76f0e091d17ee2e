"""What a takeover has found and done, as lines and as JSON values. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mirror.takeover.continuation import Continuation, TakeoverOutcome

_TEXTS: Final = {
    TakeoverOutcome.SETTLED: "the flow continues at {at}",
    TakeoverOutcome.NOTHING_COPIED: "nothing was copied: the flow begins as it is configured",
    TakeoverOutcome.COPIED_BY_FLOW: "the flow has copied here already, up to {at}",
    TakeoverOutcome.UNSETTLED: "left out: {reason}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found of MirrorMaker 2."""

    offsets_topic: str
    connector: str
    """The name of its source connector."""
    worker_group: str
    transactional_ids: Sequence[str] | None
    """Of its tasks, where it was exactly once; otherwise none. None: the target does not say."""
    syncs_topic: str = ""
    """The topic of its offset syncs, and where that is; empty if there is none."""

    @property
    def exactly_once(self) -> bool | None:
        """Whether its tasks have written exactly once; None if that is not known."""
        return None if self.transactional_ids is None else bool(self.transactional_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverReport:
    """One takeover of one flow."""

    flow: str
    source: str
    target: str
    dry_run: bool
    found: Found
    decisions: Sequence[Continuation]
    groups: Sequence[str] = ()
    """Consumer groups whose offsets on the target are MirrorMaker 2's: the flow takes them for its own."""
    not_selected: Sequence[str] = ()
    """Topics that MirrorMaker 2 has copied, and the flow does not."""
    warnings: Sequence[str] = ()

    @property
    def is_complete(self) -> bool:
        """Whether no partition was left out."""
        return all(one.outcome is not TakeoverOutcome.UNSETTLED for one in self.decisions)

    def lines(self) -> Iterator[str]:
        """Yield the report as lines."""
        found = self.found
        dry_run = ", dry run: nothing is changed" if self.dry_run else ""
        yield f"flow {self.flow}: {self.source} to {self.target}{dry_run}"
        yield f"  positions of {found.connector} are in {found.offsets_topic}"
        yield f"  {_fencing_line(found, dry_run=self.dry_run)}"
        yield f"  its offset syncs are in {found.syncs_topic}" if found.syncs_topic else "  it has no offset syncs"
        for decision in self.decisions:
            yield f"  {line_of(decision)}"
            yield from (f"    {note}" for note in decision.notes)
        if self.groups:
            yield f"  offsets of {len(self.groups)} groups on the target are MirrorMaker 2's: the flow replaces them"
        if self.not_selected:
            yield f"  not copied by the flow, but by MirrorMaker 2: {', '.join(self.not_selected)}"
        counts = Counter(one.outcome for one in self.decisions)
        yield "  " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in TakeoverOutcome if counts[outcome])
        if not self.is_complete:
            yield "  until the rest is taken over, exclude these topics from the flow"

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        found = self.found
        return {
            "flow": self.flow,
            "source": self.source,
            "target": self.target,
            "dry_run": self.dry_run,
            "complete": self.is_complete,
            "mirrormaker": {
                "offsets_topic": found.offsets_topic,
                "connector": found.connector,
                "worker_group": found.worker_group,
                "exactly_once": found.exactly_once,
                "transactional_ids": [*(found.transactional_ids or ())],
                "syncs_topic": found.syncs_topic or None,
            },
            "partitions": [_as_json(one) for one in self.decisions],
            "groups": [*self.groups],
            "not_selected": [*self.not_selected],
            "warnings": [*self.warnings],
        }


def _fencing_line(found: Found, *, dry_run: bool) -> str:
    if found.transactional_ids is None:
        return "whether it was exactly once is not known: nothing is fenced, and the target is searched for its copies"
    if not found.transactional_ids:
        return "it was not exactly once: the target is searched for what it had copied behind its positions"
    tasks = len(found.transactional_ids)
    return f"it was exactly once: {tasks} task{'s'[: tasks != 1]} {'to be fenced' if dry_run else 'fenced'}"


def line_of(decision: Continuation) -> str:
    """Return what became of a partition, as one line."""
    text = _TEXTS[decision.outcome].format(at=decision.next_offset, reason=decision.reason)
    match = decision.match
    if match is None or decision.next_offset is None:
        return f"{decision.source}: {text}"
    stored = "no stored offset" if decision.stored is None else f"stored offset {decision.stored}"
    ahead = decision.next_offset - (0 if decision.stored is None else decision.stored + 1)
    details = [stored, f"{ahead} offsets behind it were copied" if ahead else "nothing behind it was copied"]
    if match.repeated:
        details.append(f"{match.repeated} copies repeat others")
    if match.unmatched:
        details.append(f"{match.unmatched} records are of others, or in front of it")
    return f"{decision.source}: {text} ({', '.join(details)}; by {match.evidence})"


def _as_json(decision: Continuation) -> dict[str, Any]:
    match = decision.match
    return {
        "topic": decision.source.topic,
        "target_topic": decision.target.topic,
        "partition": decision.source.partition,
        "outcome": decision.outcome.value,
        "stored": decision.stored,
        "next_offset": decision.next_offset,
        "target_end": None if decision.target_log is None else decision.target_log.end,
        "copies": None if match is None else match.copies,
        "repeated": None if match is None else match.repeated,
        "unmatched": None if match is None else match.unmatched,
        "may_double": None if match is None else match.may_double,
        "evidence": None if match is None else match.evidence.value,
        "reason": decision.reason or None,
        "notes": [*decision.notes],
    }
