"""The commands that grant a flow's users all that it needs, by the flow's configuration alone. Pure.

``mirror plan`` says what is missing, once the clusters answer; this is for a start, before anything is granted.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from mirror.alignment.acl_selection import beginnings_of
from mirror.client import AclOperation
from mirror.spark.preflight.permission_table import PERMISSIONS
from mirror.spark.preflight.permissions import Allowed, FlowPermissions, Kind, Side, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.config.models import FlowConfig, MirrorConfig

_ONE_NAME: Final = re.compile(r"(?:[A-Za-z0-9._-]|\\[._-])+")
"""A pattern by which one topic is meant."""
_EVERY: Final = "*"
_CLUSTER: Final = Kind.CLUSTER.option


def grant_commands(config: MirrorConfig, flow: FlowConfig, principals: Mapping[Side, str]) -> Iterator[str]:
    """Yield the commands, one for all resources of a cluster that need the same operations.

    ``principals`` are the users, such as ``User:mirror``. Topics that are selected by a pattern are granted by what
    their names begin with, which may be more than the flow copies.
    """
    names = {pattern: _name(pattern) for pattern in flow.topics}
    found = FlowPermissions(config=config, flow=flow, topics=list(dict.fromkeys(names.values())))
    # So that all that may be needed is: the target has the topics, with fewer partitions.
    found.allowed[Side.SOURCE, Kind.TOPIC] = dict.fromkeys(found.topics, Allowed(None, 2))
    found.allowed[Side.TARGET, Kind.TOPIC] = dict.fromkeys(found.targets, Allowed(None, 1))
    begun = {name for pattern, name in names.items() if not _ONE_NAME.fullmatch(pattern)}
    begun |= {flow.target_topic(name) for name in begun}
    granted: dict[_Resource, set[AclOperation]] = defaultdict(set)
    for one in PERMISSIONS:
        needing, (side, kind) = one.needing(found), one.place
        prefixes = one.resource.prefixes(found) if needing else ()
        for name, prefixed in [(prefix, True) for prefix in prefixes] or [(name, name in begun) for name in needing]:
            resource = _Resource(side, kind.option, name or _EVERY, is_prefix=prefixed and name != "")
            granted[resource].update(one.operations, one.resource.also)
    together: dict[tuple[Side, str, bool, tuple[AclOperation, ...]], list[str]] = defaultdict(list)
    for resource, operations in granted.items():
        if not any(one.covers(resource) and operations <= more for one, more in granted.items()):
            together[resource.side, resource.option, resource.is_prefix, tuple(sorted(operations))].append(
                resource.name
            )
    for (side, option, is_prefix, needed), resources in sorted(together.items()):
        cluster = config.clusters[flow.source if side is Side.SOURCE else flow.target]
        words = [
            "kafka-acls --bootstrap-server",
            shlex.quote(str(cluster.client_options()["bootstrap.servers"])),
            f"--add --allow-principal {shlex.quote(principals[side])}",
            *(f"--operation {name_of(one)}" for one in needed),
            *([option] if option == _CLUSTER else (f"{option} {shlex.quote(name)}" for name in resources)),
            *(["--resource-pattern-type prefixed"] if is_prefix else []),
        ]
        yield " ".join(words)


class _Resource(NamedTuple):
    """What a command grants operations on; ``option`` is that of ``kafka-acls``."""

    side: Side
    option: str
    name: str
    is_prefix: bool

    def covers(self, other: _Resource) -> bool:
        """Return whether this is a prefix of the other one's name, or of its prefix."""
        same = (self.side, self.option) == (other.side, other.option)
        return same and self.is_prefix and self != other and other.name.startswith(self.name)


def _name(pattern: str) -> str:
    """Return the topic that ``pattern`` means, or what the names begin with that it matches; empty: anything."""
    return pattern.replace("\\", "") if _ONE_NAME.fullmatch(pattern) else beginnings_of([pattern])[0]
