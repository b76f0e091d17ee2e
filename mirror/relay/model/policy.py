"""How a flow's ranges are to be copied: plain values, derived from its configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mirror.relay.masking.record_masks import Masking

MAX_TRANSACTION_BYTES: Final = 64 * 1024 * 1024
"""A transaction is committed once it holds this many bytes, however young it is."""

MAX_UNCONFIRMED_BYTES: Final = 4 * MAX_TRANSACTION_BYTES
"""By sequences, nothing is sent while the progress is this far behind: the next attempt has to compare all of it."""

SEGMENTS_MS: Final = 5_000
"""The records of many partitions are written together, so that they share requests, and compress well."""

DEFAULT_EXACTLY_ONCE_BY: Final = "auto"
"""The default of a flow's ``exactly-once-by``: "auto", or the value of a :class:`mirror.relay.model.way.Way`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPolicy:
    """A flow's settings, validated by ``config``; times in ms."""

    exactly_once: bool = True
    """Exactly once or at least once."""
    exactly_once_by: str = DEFAULT_EXACTLY_ONCE_BY
    """How a partition is copied exactly once: by "sequences", in "transactions", or "auto": decided for each batch."""
    commit_interval_ms: int = 1_000
    """A commit follows at most this long after its first record, and earlier once a partition is caught up."""
    commit_min_interval_ms: int = 20
    """The shortest time between two commits."""
    on_gap: str = "fail"
    """What to do about a gap: "fail" or "skip"."""
    on_too_large: str = "fail"
    """What to do about a record that the target refuses as too large: "fail", "skip" or "aside"."""
    on_bad_timestamp: str = "fail"
    """What to do about a record whose timestamp the target refuses: "fail", "skip", "clamp" or "aside"."""
    on_no_key: str = "fail"
    """What to do about a record without a key that a compacted target refuses: "fail", "skip" or "aside"."""
    on_corrupt: str = "fail"
    """What to do about a source batch that cannot be decoded: "fail" or "aside"."""
    aside: str = ""
    """The topic of the target to which records go that it does not take; "": none."""
    on_target_loss: str = "heal"
    """What to do about a target that lost acknowledged records: "heal" (copy them again, in order) or "fail"."""
    on_target_recreated: str = "fail"
    """What to do about a target topic that was deleted and made again: "fail" or "start-over"."""
    start_over: bool = False
    """Whether a copy may start again if its progress is lost, or its target's log is not the one it wrote to."""
    max_bytes_per_second: int = 0
    """This task's share of the flow's limit; 0: no limit."""
    compression: str | None = None
    """A codec's name; None: the codec of the source batch."""
    headers: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)  # a value may be a secret
    """Headers that are added to every record."""
    transform: str = ""
    """The name of a function ("package.module:function"); "": none."""
    masking: Masking | None = None
    """What makes the copy a test copy; None: it is none."""
    run: str = ""
    """The run whose ``job`` this is: its control record can end the job; "": only its ranges end it."""
    job: int = 0
    task: int = 0
    """This task's number in the job: what is assigned while it copies says which task copies it."""
    generation: int = 0
    """Which of the flow's runs this is: a run with a greater number takes over."""
    attempt: int = 0
    """How often Spark has begun this task before."""
    refresh_ms: int = 0
    """How often the rules of the topics are read again while the task copies; 0: never."""
    period_ms: int = 180_000
    """How long a period is that telemetry reports as one span of a partition, while its copy goes on."""
    wind_up_ms: int = 5_000
    """How long the task may take to end after it was asked to."""
    renew_ms: int = 0
    """Progress older than this is committed again, before the target forgets it; 0: never."""
    index_interval_ms: int = 0
    """How often the offset index, and progress outside transactions, is written while a partition is copied; 0: the
    index with each anchor only."""
    only_local: bool = False
    """Whether records that flows have written to the source are left out."""
    origin_from: str = ""
    """What to do with records from before the source's registry began: copy them ("earliest"), leave them out
    ("registry"), or fail ("")."""
    registers_producers: bool = False
    """Whether producer ids are registered on the target before the first batch under each."""

    @property
    def segments_ms(self) -> int:
        """How often the segments of all copies of a task are written together."""
        return min(SEGMENTS_MS, self.index_interval_ms // 2) if self.index_interval_ms else SEGMENTS_MS

    @property
    def rewrites(self) -> bool:
        """Whether every record is changed, so that no batch can be passed on as bytes."""
        return self.compression is not None or bool(self.headers or self.transform or self.masking)


@dataclass(slots=True, kw_only=True)
class CopyTimeouts:
    """The timeouts of a copy, in ms."""

    delivery_timeout_ms: int
    request_timeout_ms: int
    stall_ms: int
    """How long the source may return nothing before the copy looks up its state."""
    commit_interval_ms: int
    """The longest time between a batch and its commit."""
    commit_min_interval_ms: int
    """The shortest time between two commits."""
    index_interval_ms: int = 0
    """That of the policy."""
