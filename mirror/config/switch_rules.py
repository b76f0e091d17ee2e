"""Rules about a switch and its flows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from mirror.config.key_names import suggestion

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig
    from mirror.config.problems import Sources
    from mirror.config.switch_settings import SwitchConfig
    from mirror.errors import Problem


def problems(
    switch: SwitchConfig, flows: Mapping[str, FlowConfig], sources: Sources, doubtful: frozenset[str]
) -> Iterator[Problem]:
    """Yield the contradictions in ``switch``, without those that involve its ``doubtful`` keys."""
    yield from _name_problems(switch, flows, sources, doubtful)
    here = ("switches", switch.name)
    if doubtful.isdisjoint({"fence", "hook-fence"}):
        if switch.fence == "hook" and not switch.hook_fence:
            yield sources.problem((*here, "hook-fence"), None, 'required with fence = "hook": the command that fences')
        if switch.fence == "acl" and switch.hook_fence:
            allowed = 'has no effect unless fence = "hook": remove the key'
            yield sources.problem((*here, "hook-fence"), list(switch.hook_fence), allowed)
    if doubtful.isdisjoint({"fence", "deny-read"}) and switch.fence == "hook" and switch.deny_read:
        yield sources.problem((*here, "deny-read"), True, 'has no effect unless fence = "acl": remove the key')
    if doubtful.isdisjoint({"quiet-seconds", "deadline-seconds"}) and switch.deadline_seconds <= switch.quiet_seconds:
        allowed = f"must be more than quiet-seconds ({switch.quiet_seconds}), of which producers wait all"
        yield sources.problem((*here, "deadline-seconds"), switch.deadline_seconds, allowed)


def _name_problems(
    switch: SwitchConfig, flows: Mapping[str, FlowConfig], sources: Sources, doubtful: frozenset[str]
) -> Iterator[Problem]:
    here = ("switches", switch.name)
    for key, names in (("flows", switch.flows), ("back", switch.back)):
        for name in names if key not in doubtful else ():
            if name not in flows:
                allowed = f"no such flow{suggestion(name, flows)}; there are: {', '.join(flows) or 'none'}"
                yield sources.problem((*here, key), name, allowed)
    ahead = [flows[name] for name in switch.flows if name in flows]
    if "flows" in doubtful or not ahead:
        return
    yield from _flow_problems(switch, ahead, sources)
    ends = ahead[0].target, ahead[0].source
    for back in (flows[name] for name in switch.back if name in flows and "back" not in doubtful):
        if (back.source, back.target) != ends:
            allowed = f"must copy from {ends[0]} to {ends[1]}, back from where the switch leads"
            yield sources.problem((*here, "back"), back.name, allowed)
        if back.test_copy.is_on:
            yield sources.problem((*here, "back"), back.name, "must be no test-copy: not all of its records come back")


def _flow_problems(switch: SwitchConfig, ahead: list[FlowConfig], sources: Sources) -> Iterator[Problem]:
    path, first = ("switches", switch.name, "flows"), ahead[0]
    for flow in ahead:
        if (flow.source, flow.target) != (first.source, first.target):
            allowed = f"must copy from {first.source} to {first.target}, as {first.name} does: one switch, two clusters"
            yield sources.problem(path, flow.name, allowed)
        if flow.naming != "identity":
            allowed = 'must have naming = "identity": clients find no other topic names on the target'
            yield sources.problem(path, flow.name, allowed)
        if flow.names or flow.groups.names:
            allowed = "must have no names: clients find no other names of topics and groups on the target"
            yield sources.problem(path, flow.name, allowed)
        if flow.test_copy.is_on:
            yield sources.problem(path, flow.name, "must be no test-copy: clients find other records on the target")
        if flow.end_position is not None:
            yield sources.problem(path, flow.name, "must have no until: clients find no newer records on the target")
        if not flow.exactly_once:
            allowed = 'must have delivery = "exactly-once": what is copied twice cannot be proved'
            yield sources.problem(path, flow.name, allowed)
