"""What a standby shows of a failover before it begins: what was copied, by when, groups, transactions, rights. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from mirror.client import AclBinding, AclOperation, AclPermission, ResourceType
from mirror.cluster.acls import EVERYONE, write_denial
from mirror.errors import named, printable
from mirror.groups.kept_positions import KeptGroup
from mirror.groups.summary import GroupsSummary
from mirror.switch.acl_fence import is_about
from mirror.telemetry.report.format import moment, span

_SHOWN: Final = 10
_OPERATIONS: Final = (AclOperation.WRITE, AclOperation.READ)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """One partition of the source, as the standby knows it. Times are ms since 1970; 0: that is not known."""

    flow: str
    topic: str
    partition: int
    copied: int | None
    """The progress: the next source offset to copy; None without one."""
    copied_ms: int = 0
    """When the progress was committed."""
    confirmed_ms: int = 0
    """By when all that the source had is known to be on the standby."""

    @property
    def name(self) -> str:
        """Topic and partition."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """Who may do what on some topics, but for super users, by the ACLs that name principals."""

    topics: tuple[str, ...]
    write: tuple[str, ...]
    read: tuple[str, ...]
    denied: tuple[str, ...]
    """Denials of either, such as ``WRITE User:bob``, without those that the failover lifts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What is known without the source. Times are ms since 1970."""

    switch: str
    source: str
    target: str
    time_ms: int
    source_away: str
    """Why the source does not answer; empty: it does."""
    latches: Mapping[str, str]
    """Who holds each flow that is held."""
    partitions: tuple[PartitionState, ...]
    groups: tuple[KeptGroup, ...]
    rounds: Mapping[str, GroupsSummary]
    """What the last round of each flow's groups came to."""
    open_transactions: Mapping[str, str]
    """Transactional ids that have a transaction open on the standby, with a partition where they have."""
    of_copies: tuple[str, ...] = ()
    """Those of them that a failover ends: the flows'."""
    rights: tuple[Rights, ...] | None = None
    """None: the standby has no authorizer."""
    lifted: tuple[str, ...] = ()
    """The denials of everyone on the standby that a failover deletes: WRITE on its topics, READ on its groups."""

    def refusals(self) -> Iterator[str]:
        """Yield what keeps a failover from beginning."""
        if not self.source_away:
            yield f"{self.source} answers: use mirror cutover; --although-reachable gives up what was not copied"
        if all(one.copied is None for one in self.partitions):
            yield f"{self.target} has no progress of the flows, so that nothing is known of what was copied to it"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        groups = [
            {"flow": one.flow, "group": one.group, "positions": [place._asdict() for place in one.positions]}
            for one in self.groups
        ]
        return {**asdict(self), "groups": groups, "refusals": [*self.refusals()]}

    def lines(self, *, every: bool = False) -> Iterator[str]:
        """Yield the assessment for people; without ``every`` the worst partitions and groups only."""
        yield f"switch {self.switch}: {self.target} as of {moment(self.time_ms)}, without {self.source}"
        yield f"  {self.source} {f'does not answer: {self.source_away}' if self.source_away else 'answers'}"
        for flow, line in self.latches.items():
            yield f"  flow {flow} is {line}"
        yield from self._copies(every=every)
        yield from self._groups(every=every)
        yield from self._transactions()
        yield from self._rights()

    def _ago(self, time_ms: int) -> str:
        return f"{moment(time_ms)} ({span(self.time_ms - time_ms)} ago)"

    def _copies(self, *, every: bool) -> Iterator[str]:
        by_flow: dict[str, list[PartitionState]] = defaultdict(list)
        for one in self.partitions:
            by_flow[one.flow].append(one)
        for flow, parts in by_flow.items():
            copied = [one for one in parts if one.copied is not None]
            known = [one for one in parts if one.confirmed_ms]
            yield f"  flow {flow}: {len(copied)} of {len(parts)} partitions have progress, the others no records of it"
            if known:
                first = min(one.confirmed_ms for one in known)
                yield f"    lost is at most what {self.source} took after {self._ago(first)}"
            if len(known) < len(parts):
                unknown = named("partition", [one.name for one in parts if not one.confirmed_ms])
                yield f"    by when all was copied is not known of {unknown}"
            worst = sorted(copied, key=lambda one: (one.confirmed_ms, one.copied_ms, one.name))
            for one in worst if every else worst[:_SHOWN]:
                at = f"committed {self._ago(one.copied_ms)}" if one.copied_ms else "of unknown age"
                by = f", complete up to {self._ago(one.confirmed_ms)}" if one.confirmed_ms else ""
                yield f"    {one.name}: offset {one.copied}, {at}{by}"
            if not every and len(worst) > _SHOWN:
                yield f"    {len(worst) - _SHOWN:,} more partitions, none of them older"

    def _groups(self, *, every: bool) -> Iterator[str]:
        for flow, found in self.rounds.items():
            step = f"{found.in_step} of {found.total} groups were in step"
            yield f"  flow {flow}: {step} as of {self._ago(found.time_ms)}"
            for held in found.held if every else found.held[:_SHOWN]:
                yield printable(f"    not in step: {held.group}: {held.words} ({held.detail})")
        if self.groups:
            yield f"  {len(self.groups)} group{'' if len(self.groups) == 1 else 's'} with positions"
        # Those that lack some come first.
        worst = sorted(self.groups, key=lambda one: (-one.missing, one.group))
        for one in worst if every else worst[:_SHOWN]:
            newest = max((place.stored_ms for place in one.positions), default=0)
            age = f", the last one stored {self._ago(newest)}" if newest else ""
            lacks = f", {one.missing} without a position here" if one.missing else ""
            yield printable(f"    {one.group}: {len(one.positions)} partitions{lacks}{age}")
        if not every and len(worst) > _SHOWN:
            yield f"    {len(worst) - _SHOWN:,} more groups"

    def _transactions(self) -> Iterator[str]:
        for one, where in sorted(self.open_transactions.items()):
            what = "it is ended: a copy's" if one in self.of_copies else "it is left alone"
            yield printable(f"  open transaction: {one}, in {where}; {what}")

    def _rights(self) -> Iterator[str]:
        for acl in self.lifted:
            yield printable(f"  deletes on {self.target}: {acl}")
        if self.rights is None:
            yield f"  {self.target} has no authorizer: everyone may write and read"
        for one in self.rights or ():
            write, read = (", ".join(who) or "super users only" for who in (one.write, one.read))
            denied = f"; denied: {', '.join(one.denied)}" if one.denied else ""
            yield printable(f"  {named('topic', one.topics)}: WRITE: {write}; READ: {read}{denied}")


def rights_of(topics: Collection[str], acls: Collection[AclBinding]) -> tuple[Rights, ...]:
    """Return who may write to and read ``topics``; topics with the same rights are together."""
    found: dict[tuple[tuple[str, ...], ...], list[str]] = defaultdict(list)
    of_topics = [acl for acl in acls if acl.resource_type is ResourceType.TOPIC]
    for topic in sorted(topics):
        about = [acl for acl in of_topics if is_about(acl, topic) and acl != write_denial(topic)]
        allowed = tuple(_allowed(about, operation) for operation in _OPERATIONS)
        denied = tuple(
            sorted(
                {f"{operation.name} {who}" for operation in _OPERATIONS for who in _principals(about, operation, False)}
            )
        )
        found[*allowed, denied].append(topic)
    return tuple(
        Rights(topics=tuple(names), write=write, read=read, denied=denied)
        for (write, read, denied), names in found.items()
    )


def _allowed(acls: Iterable[AclBinding], operation: AclOperation) -> tuple[str, ...]:
    acls = [*acls]
    refused = _principals(acls, operation, False)
    return () if EVERYONE in refused else tuple(sorted(_principals(acls, operation, True) - refused))


def _principals(acls: Iterable[AclBinding], operation: AclOperation, allowed: bool) -> set[str]:
    wanted = AclPermission.ALLOW if allowed else AclPermission.DENY
    return {
        acl.principal for acl in acls if acl.permission is wanted and acl.operation in {operation, AclOperation.ALL}
    }
