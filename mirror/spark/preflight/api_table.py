"""All APIs of Kafka's protocol that a flow uses, and what is lost where a cluster does not offer one (KIP-35). Pure.

Services and other implementations of the protocol offer fewer of them than Apache Kafka's brokers do.

::

    BrokerVersions of both clusters ──missing_apis──► problems: the flow cannot run
                                                      warnings: what it does without
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mirror.errors import UnsupportedVersion
from mirror.relay.model.way import Way
from mirror.spark.preflight.permissions import Side
from mirror.wire.api import Api

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig
    from mirror.wire.versions import BrokerVersions

Uses = Callable[["FlowConfig"], bool]


def _always(flow: FlowConfig) -> bool:
    del flow
    return True


@dataclass(frozen=True, slots=True)
class ApiUse:
    """APIs of one cluster that serve one purpose."""

    side: Side
    apis: tuple[Api, ...]
    without: str
    """What is lost, or what to do, if one of them is missing."""
    when: Uses = _always
    refuses: bool = False
    """Whether the flow cannot run without."""


def _exactly_once(flow: FlowConfig) -> bool:
    return flow.exactly_once


def _fences_itself(flow: FlowConfig) -> bool:
    """Whether what is kept in step beside records is stored in transactions, and records are not."""
    return not flow.exactly_once and (flow.groups.sync or flow.keeps_inventory)


def _forces_sequences(flow: FlowConfig) -> bool:
    return flow.exactly_once and flow.exactly_once_by == Way.SEQUENCES.value


def _may_use_sequences(flow: FlowConfig) -> bool:
    return flow.exactly_once and flow.exactly_once_by == "auto"


_SOURCE, _TARGET = Side.SOURCE, Side.TARGET
_TRANSACTIONS: Final = (Api.ADD_PARTITIONS_TO_TXN, Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT, Api.END_TXN)
_GROUPS: Final = (Api.LIST_GROUPS, Api.FIND_COORDINATOR, Api.OFFSET_FETCH)
_NEEDS_CONFIGS: Final = (
    f'records cannot go by sequence without it, as exactly-once-by = "{Way.SEQUENCES}" demands; set "auto"'
)

API_USES: Final = (
    ApiUse(_SOURCE, (Api.METADATA, Api.FETCH, Api.LIST_OFFSETS), "its records cannot be read", refuses=True),
    ApiUse(_SOURCE, (Api.DESCRIBE_CONFIGS,), _NEEDS_CONFIGS, _forces_sequences, refuses=True),
    ApiUse(
        _SOURCE,
        (Api.DESCRIBE_CONFIGS,),
        "all records go in transactions, since it does not show which topics are compacted",
        _may_use_sequences,
    ),
    ApiUse(
        _SOURCE,
        (Api.DESCRIBE_CONFIGS,),
        "target topics cannot be created with the configuration of their source topics; create them yourself, or set"
        ' configs = "off"',
        lambda flow: flow.configs != "off",
    ),
    ApiUse(
        _SOURCE,
        (Api.OFFSET_FOR_LEADER_EPOCH,),
        "leader epochs do not count there; a source log that is cut back is noticed only if it ends before what was"
        " copied",
    ),
    ApiUse(
        _SOURCE,
        (Api.OFFSET_FOR_LEADER_EPOCH,),
        "a group that has read records which the source lost continues at its offset, and skips what is there now in"
        " front of it",
        lambda flow: flow.groups.sync,
    ),
    ApiUse(_SOURCE, (Api.DESCRIBE_LOG_DIRS,), "mirror plan shows no bytes, and backlogs are compared by records"),
    ApiUse(
        _SOURCE,
        (Api.DESCRIBE_PRODUCERS, Api.LIST_TRANSACTIONS, Api.DESCRIBE_TRANSACTIONS),
        "it is not shown whose transactions are open, and since when",
    ),
    ApiUse(_SOURCE, _GROUPS, "no group's position is read", lambda flow: flow.follows_groups),
    ApiUse(
        _TARGET,
        (Api.METADATA, Api.PRODUCE, Api.FETCH, Api.LIST_OFFSETS, Api.OFFSET_COMMIT, Api.INIT_PRODUCER_ID),
        "it cannot be a target: records and progress are written, and compared with its log",
        refuses=True,
    ),
    ApiUse(
        _TARGET,
        _TRANSACTIONS,
        'nothing can be copied exactly once; set delivery = "at-least-once", and a record may be doubled',
        _exactly_once,
        refuses=True,
    ),
    ApiUse(
        _TARGET,
        _TRANSACTIONS,
        "no position of a group, configuration, ACL or deletion is brought in step, since no run can be fenced",
        _fences_itself,
    ),
    ApiUse(_TARGET, (Api.DESCRIBE_CONFIGS,), _NEEDS_CONFIGS, _forces_sequences, refuses=True),
    ApiUse(_TARGET, (Api.DESCRIBE_CONFIGS,), "all records go in transactions", _may_use_sequences),
    ApiUse(_TARGET, (Api.DESCRIBE_CONFIGS,), "what its topics refuse is known only once a batch was refused"),
    ApiUse(
        _TARGET,
        (Api.OFFSET_FOR_LEADER_EPOCH,),
        "leader epochs do not count there; records that it loses are noticed only if its log ends before them, and are"
        " not copied again by on-target-loss",
    ),
    ApiUse(_TARGET, (Api.CREATE_TOPICS,), "no topic is created; create those that mirror plan names yourself"),
    ApiUse(_TARGET, (Api.CREATE_PARTITIONS,), "no topic gets more partitions; add them yourself"),
    ApiUse(
        _TARGET,
        (Api.INCREMENTAL_ALTER_CONFIGS,),
        "no configuration is brought in step",
        lambda flow: flow.configs == "sync",
    ),
    ApiUse(_TARGET, (Api.DELETE_TOPICS,), "no topic is deleted", lambda flow: flow.deletes_topics),
    ApiUse(
        _TARGET,
        (Api.OFFSET_DELETE,),
        "no position of a deleted group is deleted",
        lambda flow: flow.groups.sync and flow.groups.on_group_deleted == "delete",
    ),
    ApiUse(
        _TARGET,
        (Api.DESCRIBE_ACLS, Api.CREATE_ACLS, Api.DELETE_ACLS),
        "no ACL is brought in step",
        lambda flow: flow.acls.sync,
    ),
    ApiUse(_SOURCE, (Api.DESCRIBE_ACLS,), "no ACL is brought in step", lambda flow: flow.acls.sync),
)
"""FindCoordinator and OffsetFetch of a target are not here: they decide whether it is new enough."""


@dataclass(frozen=True, slots=True)
class MissingApis:
    """One line for each use that lacks an API: ``problems`` prevent the flow from running, ``warnings`` do not."""

    problems: list[str]
    warnings: list[str]


def missing_apis(
    flow: FlowConfig, source: Mapping[str, BrokerVersions], target: Mapping[str, BrokerVersions]
) -> MissingApis:
    """Return what ``flow`` lacks, by the versions of the brokers that have answered.

    An API that one broker lacks is missing. Nothing is said of a cluster of which no broker has answered.
    """
    clusters = {Side.SOURCE: (flow.source, source), Side.TARGET: (flow.target, target)}
    found = MissingApis([], [])
    for use in API_USES:
        name, versions = clusters[use.side]
        absent = missing_of(use.apis, versions)
        if absent and use.when(flow):
            line = f"cluster {name} does not offer {', '.join(api.label for api in absent)}: {use.without}"
            if use.refuses:
                found.problems.append(f"flow {flow.name}: {line}")
            else:
                found.warnings.append(line)
    return found


def missing_of(apis: Iterable[Api], versions: Mapping[str, BrokerVersions]) -> list[Api]:
    """Return those of ``apis`` of which a broker and this client share no version."""
    return [api for api in apis if not all(map(_speaks(api), versions.values()))]


def _speaks(api: Api) -> Callable[[BrokerVersions], bool]:
    """Return whether a broker and this client share a version of ``api``."""

    def speaks(versions: BrokerVersions) -> bool:
        try:
            versions.pick(api)
        except UnsupportedVersion:
            return False
        return True

    return speaks
