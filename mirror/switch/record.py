"""What a switch has done: its state, and the evidence of each step. Stored on both clusters. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from mirror.relay.progress.stored_record import decode, encode

KEY: Final = b"switch"


class Command(enum.StrEnum):
    """The command of this program that began a switch."""

    CUTOVER = "cutover"
    FAILOVER = "failover"
    FAILBACK = "failback"


class State(enum.StrEnum):
    """How far a switch has come, in this order; ROLLED_BACK from every state before OPEN."""

    PLANNED = "planned"
    READY = "ready"
    FENCED = "fenced"
    DRAINED = "drained"
    PROVED = "proved"
    MOVED = "moved"
    OPEN = "OPEN"
    REVERSED = "reversed"
    DONE = "done"
    ROLLED_BACK = "rolled-back"

    @property
    def is_open(self) -> bool:
        """Whether the point of no return has passed."""
        return self in {State.OPEN, State.REVERSED, State.DONE}

    def reaches(self, other: State) -> bool:
        """Whether this state is ``other`` or a later one on the way to DONE."""
        order = list(State)
        return self is not State.ROLLED_BACK and order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One change of the state."""

    state: State
    at_ms: int
    by: str
    """The operator: user, host and process."""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """A topic of the old cluster that cannot be continued: it is deleted, created again, and copied back as a whole."""

    partitions: int
    """With so many partitions, replicas (-1: the cluster's default) and these configurations it is created."""
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    found_id: str = ""
    """The id of the topic that is deleted; empty if it was missing."""
    doomed_id: str = ""
    """The same, or that of an empty topic that somebody has created meanwhile."""
    created_id: str = ""
    """The id of the topic that was created."""
    created_ms: int = 0
    done_ms: int = 0
    """Since when the flows begin there again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailbackRecord:
    """What ``mirror failback`` has done after a failover. Offsets are those of the old cluster."""

    topics: tuple[str, ...] = ()
    """The topics that are fenced there."""
    denied: tuple[str, ...] = ()
    """Of these, the topics on which it creates the denial of WRITE."""
    denied_groups: tuple[str, ...] = ()
    """The groups on which it creates the denial of READ."""
    fence_ms: int = 0
    """When the fence was intended."""
    shown_ms: int = 0
    """When each broker showed it."""
    located_ms: int = 0
    """When the tail was found."""
    starts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Where the tail of each partition begins, exactly; nothing of a topic that was made again."""
    ends: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Where it ends: behind the fence."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """The ids of the topics that end there; empty on brokers without topic ids."""
    broken: tuple[str, ...] = ()
    """Topics that the way back cannot continue: truncated, or made again."""
    rebuilds: Mapping[str, Rebuild] = field(default_factory=dict)
    """Of these, the topics of which the deletion was intended; also those that are done, and not broken any more."""
    back_held_ms: int = 0
    """Since when the flows of the way back are held, for the rebuilds; 0 if they are not, or not any more."""
    exported: tuple[str, ...] = ()
    """Topics whose tail is in a topic of its own on the other cluster."""
    skipped: tuple[str, ...] = ()
    """Of these, the topics whose flow goes on behind the tail, which it does not copy any more."""
    released_ms: int = 0
    """When the flows that the failover holds were released."""
    lifted_ms: int = 0
    """When the denials were removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchRecord:
    """A switch. Offsets are by topic, in the order of its partitions; times are ms since 1970."""

    state: State
    command: Command = Command.CUTOVER
    generation: int = 0
    """One more with each operator that goes on with the switch."""
    operator: str = ""
    left: bool = False
    """Whether that operator has ended, and does nothing more."""
    attempt: int = 1
    """One more with each beginning after a rollback."""
    flows: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    """The ids of the source and of the target."""
    fence: str = ""
    """``acl`` or ``hook``; empty as long as no fence was intended."""
    topics: tuple[str, ...] = ()
    """The topics that are fenced."""
    denied: tuple[str, ...] = ()
    """Of these, the topics on which this switch creates the denial: the others had it before."""
    denied_groups: tuple[str, ...] = ()
    """The groups on which this switch creates the denial of READ."""
    fence_ms: int = 0
    """When the fence was intended: producers may be refused from then on."""
    hook_fenced: bool = False
    """Whether ``hook-fence`` may have fenced and has not lifted it since."""
    shown_ms: int = 0
    """When each broker showed the fence."""
    ends: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The fenced ends; none before they have settled."""
    ends_ms: int = 0
    """Since when nothing has moved, as of when the ends were stored."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Of a failover: the topic ids on the source, as the flows knew them last."""
    copied: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Of a failover: up to where the flows had copied each partition of the source when the target opened; 0 without
    progress. By sequences the target may have a few records more.
    """
    proofs: Mapping[str, str] = field(default_factory=dict)
    """The hash of the proof of each flow."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """A hash of the positions of each group on the source, for which it has the same ones on the target."""
    latches: Mapping[str, int] = field(default_factory=dict)
    """The generation of the latch of each flow that this switch holds."""
    rested: Mapping[str, int] = field(default_factory=dict)
    """The generation of each latch behind which nothing of the flow writes any more, as the hold has found."""
    opening: bool = False
    """Whether the target may have OPEN: stored on both clusters before that."""
    target_ends: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The target's ends when the switch opened: from there on all records are new ones."""
    open_ms: int = 0
    switched_ms: int = 0
    """When ``hook-switch`` was done."""
    rollback: str = ""
    """Why it is rolled back; nothing else happens from then on."""
    lifted_ms: int = 0
    """When a rollback has found that nothing of the fence is left."""
    unfenced: str = ""
    """Of a failover whose source answered: why it was not fenced."""
    ended: Mapping[str, int] = field(default_factory=dict)
    """Of a failover: the generation of each latch behind which the transactional ids of its copies were ended."""
    failback: FailbackRecord = FailbackRecord()
    steps: tuple[Step, ...] = ()

    @property
    def needs_source(self) -> bool:
        """Whether the source has to store this record, too: it counts there while the target is away.

        In a failover the source may be dead, so that only the target counts.
        """
        return self.command is not Command.FAILOVER and not self.state.is_open

    @property
    def has_begun(self) -> bool:
        """Whether anything of the switch was intended on a cluster, so that only its own command can go on."""
        return self.fence_ms > 0 or bool(self.latches) or self.state.reaches(State.FENCED)

    @property
    def fences(self) -> bool:
        """Whether producers may be refused on the source for a switch that is not open."""
        is_over = self.state.is_open or self.state is State.ROLLED_BACK
        return self.fence_ms > 0 and not self.lifted_ms and not is_over

    def entered(self, state: State, now_ms: int, why: str = "") -> SwitchRecord:
        """Return the record in another state, with the step that leads there."""
        step = Step(state=state, at_ms=now_ms, by=self.operator, why=why)
        return replace(self, state=state, steps=(*self.steps, step))


def begin(flows: tuple[str, ...], command: Command, before: SwitchRecord | None = None) -> SwitchRecord:
    """Return the record of a switch that begins, or begins again after a rollback."""
    attempt = 1 if before is None else before.attempt + 1
    generation = 0 if before is None else before.generation
    return SwitchRecord(state=State.PLANNED, command=command, flows=flows, attempt=attempt, generation=generation)


def to_bytes(record: SwitchRecord) -> bytes:
    """Return what is stored."""
    return encode(record)


def parse(value: bytes) -> SwitchRecord | None:
    """Return the record in ``value``; None if it is not understood, such as one of a later version."""
    return decode(SwitchRecord, value)
