"""A connector in Kafka Connect that has nothing to copy is seen by its state. Real clients, brokers in memory."""

from __future__ import annotations

import pytest

from mirror.errors import FlowError
from mirror.relay.model.ranges import Outcome as CopyOutcome
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.control import Action
from tests.takeover.fake_mirrormaker import FakeMirrorMaker, only

VALUES = [b"%d" % number for number in range(12)]
FORMS = {
    "Kafka Connect": ("connect-offsets", "connect-status", "connect-cluster", "copy"),
    "Strimzi": (
        "mirrormaker2-cluster-offsets",
        "mirrormaker2-cluster-status",
        "mirrormaker2-cluster",
        "paris->berlin.MirrorSourceConnector",
    ),
}


class IdleConnector:
    """It has copied all that the source has, and stored that; its worker runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
        positions, self.states, self.group, self.connector = FORMS[form]
        self.mm2 = FakeMirrorMaker(monkeypatch, positions=positions, connector=self.connector)
        self.mm2.pair.target.add_topic(self.states, 5)
        self.mm2.write(*VALUES)
        self.mm2.copy(0, 12, synced=(0,))
        self.mm2.store(11)
        self.mm2.workers(self.group, 1)

    def put(self, state: str | None) -> None:
        self.mm2.put(self.states, self.connector, state)


@pytest.fixture(params=FORMS)
def idle(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> IdleConnector:
    return IdleConnector(monkeypatch, request.param)


@pytest.mark.parametrize("state", ["RUNNING", "PAUSED", "UNASSIGNED", "FAILED"])
def test_a_connector_that_was_not_stopped_is_named(idle: IdleConnector, state: str) -> None:
    idle.put("STOPPED")
    idle.put(state)
    seen = rf"{idle.connector} is {state} on worker w:1 \(generation 7\) according to topic {idle.states}"
    for run in (idle.mm2.run, idle.mm2.hand_back):
        with pytest.raises(FlowError, match=rf"run still: its connector {seen}, and group {idle.group} has 1 workers"):
            run()
    with pytest.raises(FlowError, match=r"stop it \(PUT /connectors/NAME/stop; in Strimzi state: stopped\)"):
        idle.mm2.run(dry_run=True)
    assert idle.mm2.pair.committed() is None


@pytest.mark.parametrize("state", ["STOPPED", None])
def test_a_connector_that_was_stopped_or_deleted_is_taken_over(idle: IdleConnector, state: str | None) -> None:
    idle.put("RUNNING")
    idle.put(state)
    report = idle.mm2.run()
    assert (only(report).next_offset, report.warnings) == (12, [])
    assert idle.mm2.pair.copy().outcome is CopyOutcome.COMPLETE
    assert idle.mm2.pair.values() == VALUES


def test_a_connector_whose_workers_were_all_killed_is_taken_over(idle: IdleConnector) -> None:
    """Their last records say RUNNING for ever."""
    idle.put("RUNNING")
    idle.mm2.workers(idle.group, 0)
    assert only(idle.mm2.run()).next_offset == 12


def test_a_group_that_is_not_found_may_have_another_name(idle: IdleConnector) -> None:
    idle.put("RUNNING")
    idle.mm2.pair.target.admin.groups.clear()
    with pytest.raises(FlowError, match=rf"there is no group {idle.group} of its workers: name it with --worker-group"):
        idle.mm2.run()
    assert only(idle.mm2.run(deployment={"worker_group": idle.group})).next_offset == 12


def test_workers_that_cannot_be_asked_for_may_run(idle: IdleConnector) -> None:
    idle.put("RUNNING")
    refused = Action(errors={idle.group: errors.GROUP_AUTHORIZATION_FAILED})
    idle.mm2.pair.target.control.add(lambda call: refused if call.api is Api.DESCRIBE_GROUPS else None)
    with pytest.raises(FlowError, match=r"is RUNNING .*whether its workers run cannot be read: .*permission Describe"):
        idle.mm2.run()


def test_a_connector_that_goes_on_with_other_topics_may_run(idle: IdleConnector) -> None:
    idle.put("RUNNING")
    report = idle.mm2.run(while_it_writes=True)
    assert only(report).next_offset == 12
    assert [f"{idle.connector} is RUNNING" in line for line in report.warnings] == [True]


def test_states_in_another_topic_have_to_be_named(idle: IdleConnector) -> None:
    idle.put("RUNNING")
    topics = idle.mm2.pair.target.topics
    topics["own"] = topics.pop(idle.states)
    (line,) = idle.mm2.run(dry_run=True).warnings
    assert f"whether connector {idle.connector} was stopped is not known" in line
    assert f"there is no topic {idle.states}" in line
    assert line.endswith("with --status-topic")
    with pytest.raises(FlowError, match=r"is RUNNING .* according to topic own"):
        idle.mm2.run(deployment={"status_topic": "own"})
    with pytest.raises(FlowError, match=r"there is no topic none on berlin: correct --status-topic"):
        idle.mm2.run(deployment={"status_topic": "none"})
