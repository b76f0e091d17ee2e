"""What a flow does without, if a cluster does not offer an API. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from mirror.doctor.findings import Finding, Severity
from mirror.wire.api import Api
from mirror.wire.versions import BrokerVersions

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig


class _Need(NamedTuple):
    api: Api
    on_target: bool
    severity: Severity
    when: Callable[[FlowConfig], bool]
    effect: str
    remedy: str = "nothing, if that can be done without; otherwise use brokers that offer it"


_AT_LEAST_ONCE: Final = 'use brokers with transactions, or set delivery = "at-least-once"'
_TRANSACTIONS: Final = (Api.ADD_PARTITIONS_TO_TXN, Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT, Api.END_TXN)
_NEEDS: Final = (
    *(
        _Need(
            api, True, Severity.ERROR, lambda flow: flow.exactly_once, "nothing is copied exactly once", _AT_LEAST_ONCE
        )
        for api in (Api.INIT_PRODUCER_ID, *_TRANSACTIONS)
    ),
    _Need(
        Api.INCREMENTAL_ALTER_CONFIGS,
        True,
        Severity.WARNING,
        lambda flow: flow.configs == "sync",
        "the configurations of target topics are not kept in step",
        'use brokers that offer it, or set configs = "off"',
    ),
    _Need(
        Api.DELETE_TOPICS,
        True,
        Severity.WARNING,
        lambda flow: flow.deletes_topics,
        "target topics are not deleted with their source topics",
        'delete them by hand, and set on-topic-deleted = "keep"',
    ),
    *(
        _Need(Api.DESCRIBE_ACLS, side, Severity.WARNING, lambda flow: flow.acls.sync, "ACLs are not kept in step")
        for side in (False, True)
    ),
    _Need(
        Api.DESCRIBE_LOG_DIRS,
        False,
        Severity.NOTE,
        lambda _: True,
        "backlogs are compared by records, and mirror plan shows no bytes",
    ),
    _Need(
        Api.LIST_TRANSACTIONS,
        False,
        Severity.NOTE,
        lambda _: True,
        "it is not shown since when a transaction of the source is open",
    ),
)


def missing_apis(flow: FlowConfig, versions: Mapping[str, Mapping[str, BrokerVersions]]) -> Iterator[Finding]:
    """Yield each API that a broker of the flow's clusters does not offer, with what it means for the flow.

    ``versions``: by cluster and broker.
    """
    for need in _NEEDS:
        cluster = flow.target if need.on_target else flow.source
        lacking = [broker for broker, one in versions.get(cluster, {}).items() if need.api.spec.key not in one.ranges]
        if lacking and need.when(flow):
            more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
            what = f"{lacking[0]}{more} of {cluster} does not offer {need.api.label}"
            yield Finding(need.severity, f"flow {flow.name}", what, need.effect, need.remedy)
