"""What of topics, configurations and ACLs is not ready on the target: the differences that ``mirror drift`` finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.rehearsal.values import Blocker, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.config.models import FlowConfig
    from mirror.spark.preflight.drift import FlowDrift

_ADOPT: Final = "decide which side is right (mirror drift); mirror apply --flow {flow} --adopt takes the source's"
_OF_BOTH: Final = {
    "unauthorized": "grant the permission: mirror plan names it",
    "refused": "remove the cause that the target names, or set it there by hand",
}
_OF_CONFIG: Final = _OF_BOTH | {
    **dict.fromkeys(("differed-before", "changed-on-target", "not-set-by-flow"), _ADOPT),
    "not-owned": "mirror apply --flow {flow} --adopt {topic}, if the flow may change the topic; it does so once it has"
    " copied into it",
    "over-limit": "check that the records may go, then mirror apply --flow {flow} --max-deletions N",
    "waits-for-second-round": "check that the records may go; the next round makes the change",
    "waits-for-restart": "stop the flow, run mirror apply --flow {flow}, and start it again: a running copy depends on"
    " the value",
    "unavailable": "rehearse again once the target answers",
}
_OF_ACL: Final = _OF_BOTH | {
    "removed-on-target": _ADOPT,
    "creation-interrupted": "mirror apply --flow {flow} --adopt deletes it, unless others need it",
    "over-limit": "raise max-acls of the flow, or have the source grant prefixes instead of names",
    "waits-for-denial": "remove what keeps the denial from the target",
}
_LOOK: Final = "mirror drift shows it; change one side by hand"


def blockers_of(flow: FlowConfig, drift: FlowDrift) -> Iterator[Blocker]:
    """Yield what differs between both sides, with what to do about it."""
    apply = f"mirror apply --flow {flow.name}, or the next run"
    if flow.test_copy.is_on:
        reason = (
            f"flow {flow.name} makes a test copy: {flow.target} does not have all records of {flow.source} as they are"
        )
        action = "nothing: applications stay where they are"
        yield Blocker(kind=Kind.CONFIGURATION, name="test-copy", reason=reason, action=action)
    for line in drift.changes:
        cluster, _, change = line.removeprefix("on ").partition(": ")
        yield Blocker(kind=Kind.TOPIC, name=cluster, reason=change, action=apply)
    for topic, reason in drift.obstacles.items():
        yield Blocker(
            kind=Kind.TOPIC, name=topic, reason=reason, action="remove the cause; until then the topic is not copied"
        )
    for one in (*drift.configs.pending, *drift.configs.held):
        action = apply if one.reason is None else _OF_CONFIG.get(one.reason.value, _LOOK)
        action = action.format(flow=flow.name, topic=one.subject.topic)
        yield Blocker(kind=Kind.CONFIGURATION, name=one.subject.topic, reason=one.line(), action=action)
    for acl in (*drift.acls.pending, *drift.acls.held):
        action = apply if acl.reason is None else _OF_ACL.get(acl.reason.value, _LOOK)
        action = action.format(flow=flow.name)
        why = f"{acl.reason}" if acl.reason is not None else f"it is to be {acl.change}d"
        yield Blocker(kind=Kind.ACL, name=acl.text, reason=why, action=action)
    for problem in drift.configs.problems:
        yield Blocker(kind=Kind.CONFIGURATION, name=flow.target, reason=problem, action="mirror drift shows it again")
    for problem in drift.acls.problems:
        yield Blocker(kind=Kind.ACL, name=flow.target, reason=problem, action="mirror drift shows it again")


def notes_of(flow: FlowConfig, drift: FlowDrift) -> Iterator[str]:
    """Yield what was not compared."""
    if not flow.aligns_topics:
        yield f'configurations of topics are not compared: flow {flow.name} has configs = "{flow.configs}"'
    if not flow.acls.sync:
        yield f"ACLs are not compared: flow {flow.name} does not keep them in step ([flows.{flow.name}.acls])"
    if drift.acls.off:
        yield f"ACLs: {drift.acls.off}"
    if left_out := drift.acls.counts.get("left_out"):
        yield (
            f"{left_out} ACLs of {flow.source} that allow more than reading are left out on {flow.target}"
            " (write = false): producers that switch need them"
        )
