"""``mirror doctor`` as it is typed: what it finds, what it exits with, and that its words are those of a run."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from mirror import causes
from mirror.causes import Fault
from mirror.cli.commands import doctor
from mirror.doctor import diagnosis
from mirror.errors import FlowError
from mirror.spark.preflight.flow_checks import Findings
from mirror.wire.api import Api
from mirror.wire.messages.admin import QuotaEntity, QuotaEntry, QuotaValue
from tests.fakes import errors
from tests.fakes.control import Action
from tests.spark.flow_harness import FlowHarness

if TYPE_CHECKING:
    from typer.testing import Result


_WHOLE: Final = "its permissions suffice, and its target takes what its source has"


class DoctorHarness(FlowHarness):
    lines: list[str]
    """What the last diagnosis said."""

    def doctor(self, *arguments: str) -> Result:
        return self.invoke("doctor", *arguments)

    def found(self, status: int, *severities: str) -> list[dict[str, Any]]:
        """The findings of these severities, besides those of this host."""
        result = self.doctor("--json")
        assert result.exit_code == status, (result.stdout, result.stderr)
        findings = json.loads(result.stdout)["findings"]
        found = [one for one in findings if one["severity"] in severities and one["where"] != "this host"]
        self.lines = [one["what"] for one in findings]
        return [one for one in found if one["why"] != causes.ONE_SERVER.effect]


@pytest.fixture
def site(tmp_path: Path) -> DoctorHarness:
    made = DoctorHarness(tmp_path)
    for cluster in (made.a, made.b):
        cluster.kafka.controller_ms = lambda: int(time.time() * 1000)
        cluster.set_moods({})
    made.a.add_topic("orders", [10])
    return made


def test_nothing_is_wrong(site: DoctorHarness) -> None:
    result = site.doctor()
    assert result.exit_code == 0, result.stdout
    for line in (
        "cluster a",
        "  ok      3 brokers answer at the advertised address, within ",
        "  ok      the clock of its controller is this host's, within ",
        "flow f",
        "  ok      its permissions suffice, and its target takes what its source has",
    ):
        assert line in result.stdout


def test_a_bootstrap_server_that_is_away_is_a_warning_and_its_cluster_an_error(site: DoctorHarness) -> None:
    site.config.write_text(site.config.read_text().replace('"a:1"', '"a:1,gone:1"'))
    (one,) = site.found(0, "error", "warning")
    assert (one["severity"], one["remedy"]) == ("warning", causes.SPARE_AWAY.remedy)
    site.config.write_text(site.config.read_text().replace('"b:1"', '"away:1"'))
    found = site.found(3, "error")
    assert [(one["where"], one["remedy"]) for one in found] == [("cluster b", causes.AWAY.remedy)]


def test_settings_of_brokers_have_the_words_of_a_run(site: DoctorHarness) -> None:
    site.b.set_moods({"broker_settings": json.dumps({"transaction.state.log.replication.factor": "4"})})
    (one,) = site.found(3, "error")
    line = f"{one['what']}: {one['why']}; {one['remedy']}"
    assert line == (
        f"the target's transaction.state.log.replication.factor is 4, and 3 brokers run:"
        f" {causes.TRANSACTION_REPLICAS.words}"
    )
    assert Fault(one["what"], causes.TRANSACTION_REPLICAS).line == line


def test_a_missing_permission_is_an_error(site: DoctorHarness) -> None:
    site.a.set_moods({"denied": json.dumps({"topic orders": ["READ"]})})
    (one,) = site.found(3, "error")
    assert (one["where"], "Read" in one["what"]) == ("flow f", True)


def test_a_clock_and_a_quota_are_found(site: DoctorHarness) -> None:
    site.b.kafka.controller_ms = lambda: int(time.time() * 1000) + 60_000
    site.b.kafka.admin.quotas = [
        QuotaEntry((QuotaEntity("client-id", "mirror"),), (QuotaValue("producer_byte_rate", 5e6),))
    ]
    clock, quota = site.found(0, "warning", "note")
    assert re.fullmatch(r"the clock of its controller is (59|60)\.\d s ahead of this host's", clock["what"])
    assert quota["what"] == "producer_byte_rate of its client on b is 5,000,000 bytes per second and broker"


def test_what_may_not_be_read_is_said(site: DoctorHarness) -> None:
    site.b.set_moods({"broker_configs": "refused"})
    site.b.kafka.control.on(Api.DESCRIBE_QUORUM, Action(errors={"quorum": errors.CLUSTER_AUTHORIZATION_FAILED}))
    found = {one["why"] for one in site.found(0, "note")}
    assert found >= {causes.SETTINGS_UNKNOWN.effect, causes.CLOCK_UNKNOWN.effect}
    assert _WHOLE not in site.lines


@pytest.mark.parametrize("side", ["a", "b"])
def test_topics_whose_configurations_cannot_be_read_are_a_note(site: DoctorHarness, side: str) -> None:
    site.b.add_topic("a.orders", [0])
    cluster = {"a": site.a, "b": site.b}[side]
    topic = {"a": "orders", "b": "a.orders"}[side]
    cluster.set_moods({"hidden_configs": json.dumps([topic])})
    notes = [one for one in site.found(0, "note") if one["why"] == causes.SETTINGS_UNKNOWN.effect]
    (what,) = {one["what"].partition(":")[0] for one in notes}
    assert what == f"topic {topic} of {side} cannot be compared"
    assert _WHOLE not in site.lines


def test_a_setting_that_is_no_number_ends_no_diagnosis(site: DoctorHarness) -> None:
    site.b.set_moods({"broker_settings": json.dumps({"socket.request.max.bytes": "", "max.connections.per.ip": "x"})})
    found = site.found(0, "note")
    assert {one["why"] for one in found} == {causes.NO_NUMBER.effect}
    assert {one["where"] for one in found} == {"cluster b", "flow f"}
    assert _WHOLE not in site.lines


def test_an_error_of_a_flow_and_its_refusal_are_both_found() -> None:
    found = Findings(problems={"f": ["refused"]}, errors={"f": FlowError("away"), "g": FlowError("away")})
    assert diagnosis.problems_of(found) == {"f": ["away", "refused"], "g": ["away"]}


def test_an_error_of_one_flow_is_a_finding_and_keeps_what_else_was_found(
    site: DoctorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise FlowError("cluster b does not answer")

    site.b.set_moods({"broker_settings": json.dumps({"auto.create.topics.enable": "true"})})
    monkeypatch.setattr(diagnosis, "check_batches", away)
    kept, one = site.found(0, "note", "warning")
    assert kept["why"] == causes.AUTO_CREATE.effect
    assert (one["where"], one["what"]) == ("flow f", "its topics cannot be compared: cluster b does not answer")


def test_brokers_whose_settings_differ_are_found(site: DoctorHarness) -> None:
    site.b.kafka.admin.broker_configs["2"] = {"message.max.bytes": "1000"}
    (one,) = site.found(0, "warning")
    assert (one["where"], one["why"]) == ("cluster b", causes.SETTINGS_DIFFER.effect)
    assert one["what"].startswith("message.max.bytes is ")
    assert one["what"].endswith("1000 on broker 2")


def test_what_was_found_is_printed_where_the_time_does_not_suffice(
    site: DoctorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    monkeypatch.setattr(diagnosis, "check_batches", lambda *_: released.wait(30) and ())
    monkeypatch.setattr(doctor, "_SHARE", 0.3)  # of 10 s: it has the other 7 s to print before any command is ended
    try:
        result = site.doctor("--timeout", "10")
    finally:
        released.set()
    assert result.exit_code == 1
    assert "3 brokers answer at the advertised address" in result.stdout
    assert "flow f" not in result.stdout
    assert "what has no line above was not checked" in result.stderr


def test_of_many_topics_a_part_is_compared_and_that_is_said(
    site: DoctorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "_MOST_TOPICS", 1)
    assert site.found(0, "note") == []
    assert _WHOLE in site.lines
    site.a.add_topic("orders-2", [10])
    (one,) = site.found(0, "note")
    assert _WHOLE not in site.lines
    assert one["what"] == "the configurations of 1 of its 2 topics were compared"
