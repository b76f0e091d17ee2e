"""A proof: what was found to be equal, link by link, each with the hash of the one before. Pure.

A changed link needs other hashes in all later links, so that the last hash differs from the one that a run has printed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any, Final

from mirror.errors import MirrorError
from mirror.verify.partition_results import PartitionResult

FORMAT: Final = 1
_NO_LINK: Final = ""


class ProofError(MirrorError):
    """A file is no proof, or not the one that was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedRange:
    """A part of one partition in which both sides were equal."""

    topic: str
    target_topic: str
    partition: int
    source_topic_id: str
    target_topic_id: str
    source_start: int
    source_end: int
    target_start: int
    target_end: int
    records: int
    bytes: int
    """Of the source, as in its log."""
    sha256: str
    """Of the source's batches in the range, as in its log, without leader epochs."""
    named: dict[str, int]
    """What differed, and may differ."""
    not_compared: list[dict[str, Any]]


# Invariant: Each link of a proof has the hash of the link before, so that a changed proof is refused.
# Test: tests/verify/test_proof.py::test_changed_proof_is_refused
@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What one run has proved."""

    time: str
    """ISO 8601, in UTC."""
    version: str
    """Of this project."""
    flow: str
    source_cluster_id: str
    target_cluster_id: str
    settings: dict[str, str]
    """What the flow does to records."""
    ranges: tuple[ProvedRange, ...]
    unproved: tuple[str, ...] = ()
    """Partitions of which this run has proved nothing, and why."""
    previous: str = _NO_LINK
    """The hash of the link before; empty for the first one."""
    hash: str = ""

    def sealed(self, previous: str) -> Link:
        """Return it behind the link with the hash ``previous``."""
        linked = replace(self, previous=previous, hash="")
        return replace(linked, hash=linked.computed_hash())

    def computed_hash(self) -> str:
        """Return the hash of all but its own field."""
        fields = asdict(self)
        del fields["hash"]
        return sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Proof:
    """The links of one flow, the oldest first."""

    links: tuple[Link, ...] = ()

    @property
    def last_hash(self) -> str:
        """The hash of the last link, which stands for all; empty if there is none."""
        return self.links[-1].hash if self.links else _NO_LINK

    def extended(self, link: Link) -> Proof:
        """Return it with one more link."""
        return Proof((*self.links, link.sealed(self.last_hash)))

    def ends(self) -> dict[tuple[str, int], ProvedRange]:
        """Return the last range of each source partition."""
        return {(one.topic, one.partition): one for link in self.links for one in link.ranges}

    def ranges(self) -> list[ProvedRange]:
        """Return all ranges, the oldest first."""
        return [one for link in self.links for one in link.ranges]

    def check_flow(self, flow: str, source_cluster_id: str, target_cluster_id: str) -> None:
        """Raise ProofError if it is of another flow, or of other clusters."""
        for link in self.links:
            found = (link.flow, link.source_cluster_id, link.target_cluster_id)
            if found != (flow, source_cluster_id, target_cluster_id):
                raise ProofError(
                    f"the proof is of flow {found[0]} from cluster {found[1]} to {found[2]}, and not of flow {flow}"
                    f" from {source_cluster_id} to {target_cluster_id}: use a file of its own for each flow"
                )

    def to_json(self) -> str:
        """Return the content of its file."""
        document = {"format": FORMAT, "links": [asdict(link) for link in self.links], "last": self.last_hash}
        return json.dumps(document, indent=1) + "\n"


def parse_proof(text: str) -> Proof:
    """Return the proof in a file's ``text``. Raises ProofError if it is none, or was changed."""
    try:
        document = json.loads(text)
        if document["format"] != FORMAT:
            raise ProofError(f"the proof has the format {document['format']}, where {FORMAT} is known")
        links = tuple(_link_of(fields) for fields in document["links"])
        last = document["last"]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ProofError(f"it is no proof: {type(error).__name__}: {error}") from None
    previous = _NO_LINK
    for number, link in enumerate(links, start=1):
        if link.previous != previous:
            raise ProofError(f"link {number} does not follow the link before it: a link was removed, added or moved")
        if link.computed_hash() != link.hash:
            raise ProofError(f"link {number} was changed: its hash is not that of its content")
        previous = link.hash
    if last != previous:
        raise ProofError("links were removed from its end: the last hash is not that of the last link")
    return Proof(links)


def _link_of(fields: dict[str, Any]) -> Link:
    ranges = tuple(ProvedRange(**one) for one in fields["ranges"])
    return Link(**{**fields, "ranges": ranges, "unproved": tuple(fields["unproved"])})


def proved_ranges(results: Iterable[PartitionResult]) -> tuple[ProvedRange, ...]:
    """Return what the results prove, without ranges in which the source had nothing."""
    return tuple(
        ProvedRange(
            topic=result.topic,
            target_topic=result.target_topic,
            partition=result.partition,
            source_topic_id=result.source_topic_id,
            target_topic_id=result.target_topic_id,
            source_start=result.verdict.source_start,
            source_end=result.verdict.source_end,
            target_start=result.verdict.target_start,
            target_end=result.verdict.target_end,
            records=result.verdict.records,
            bytes=result.verdict.bytes,
            sha256=result.verdict.digest,
            named={name.value: count for name, count in sorted(result.verdict.named.items())},
            not_compared=[uncompared.to_record() for uncompared in result.verdict.uncompared],
        )
        for result in results
        if result.proved and result.verdict is not None and _has_extent(result)
    )


def _has_extent(result: PartitionResult) -> bool:
    verdict = result.verdict
    return verdict is not None and verdict.source_start != verdict.source_end


def unproved_lines(results: Iterable[PartitionResult]) -> tuple[str, ...]:
    """Return a line for each partition of which nothing is proved."""
    return tuple(
        f"{result.topic}-{result.partition}: {result.error or result.outcome}"
        for result in results
        if not result.proved
    )


def against_digest(result: PartitionResult, expected: str) -> PartitionResult:
    """Return the result of a range that was proved before: its bytes must have the ``expected`` hash still."""
    verdict = result.verdict
    if not expected or verdict is None or not verdict.complete or verdict.digest == expected:
        return result
    reasons: Sequence[str] = [uncompared.reason for uncompared in verdict.uncompared]
    why = (
        "; ".join(dict.fromkeys(reasons))
        or "compaction has rewritten it, or these are not the records that were proved"
    )
    result.error = result.error or f"the source's log is not as it was when it was proved: {why}"
    return result
