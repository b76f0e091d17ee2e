"""``mirror doctor`` as it is typed: what it finds, what it exits with, and that its words are those of a run."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirror import causes
from mirror.causes import Fault
from mirror.doctor import diagnosis
from mirror.wire.api import Api
from mirror.wire.messages.admin import QuotaEntity, QuotaEntry, QuotaValue
from tests.fakes import errors
from tests.fakes.control import Action
from tests.spark.flow_harness import FlowHarness

if TYPE_CHECKING:
    from typer.testing import Result


class DoctorHarness(FlowHarness):
    def doctor(self, *arguments: str) -> Result:
        return self.invoke("doctor", *arguments)

    def found(self, status: int, *severities: str) -> list[dict[str, Any]]:
        """The findings of these severities, besides those of this host."""
        result = self.doctor("--json")
        assert result.exit_code == status, (result.stdout, result.stderr)
        findings = json.loads(result.stdout)["findings"]
        found = [one for one in findings if one["severity"] in severities and one["where"] != "this host"]
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
    assert (one["severity"], one["remedy"]) == ("warning", causes.AWAY.remedy)
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


def test_of_many_topics_a_part_is_compared_and_that_is_said(
    site: DoctorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "_MOST_TOPICS", 1)
    assert site.found(0, "note") == []
    site.a.add_topic("orders-2", [10])
    (one,) = site.found(0, "note")
    assert one["what"] == "the configurations of 1 of its 2 topics were compared"
