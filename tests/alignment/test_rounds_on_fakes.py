"""Rounds over two clusters. Real clients, brokers in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirror.alignment.deletion_decision import CONFIRM_MS
from mirror.alignment.reconciler import Failure
from mirror.alignment.topic_configs import ConfigAlignment
from mirror.errors import Fenced, KafkaError
from mirror.relay.progress.flow_topic import inventory_topic_of
from mirror.wire.api import Api
from tests.alignment.killed_rounds import killed_while_it_makes
from tests.alignment.site import TARGET, Site, found
from tests.fakes import errors
from tests.fakes.control import Action
from tests.relay.fake_pair import FLOW, FakePair


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site(FakePair(monkeypatch))
    yield site
    site.close()


def alterations(site: Site) -> int:
    """How many requests have changed something on the target."""
    return sum(not call.body.validate_only for call in site.pair.target.calls(Api.INCREMENTAL_ALTER_CONFIGS))


def test_what_the_source_sets_changes_and_removes_is_followed(site: Site) -> None:
    assert site.round().is_in_step
    for value in ("1000", "2000"):
        site.source["retention.ms"] = value
        report = site.round()
        assert (report.changed, report.is_in_step, site.target) == (1, True, {"retention.ms": value})
    del site.source["retention.ms"]
    assert site.round().changed == 1
    assert site.target == {}
    before = alterations(site)
    assert site.round().differences == ()
    assert alterations(site) == before


def test_what_was_set_on_the_target_alone_survives(site: Site) -> None:
    site.target["retention.ms"] = "5"
    for _ in range(2):
        report = site.round()
        assert (found(report), report.is_in_step) == ({"retention.ms": "only-on-target"}, True)
    site.source["retention.ms"] = "9"
    report = site.round()
    assert (found(report), report.is_in_step) == ({"retention.ms": "changed-on-target"}, False)
    assert site.target == {"retention.ms": "5"}


def test_what_differed_before_is_left_until_it_is_adopted(site: Site) -> None:
    site.source |= {"retention.ms": "9", "max.message.bytes": "2000000"}
    site.target |= {"retention.ms": "5", "cleanup.policy": "compact"}
    before = dict(site.target)
    expected = {
        "cleanup.policy": "only-on-target",
        "max.message.bytes": "differed-before",
        "retention.ms": "differed-before",
    }
    for _ in range(2):
        report = site.round()
        assert (found(report), report.changed, site.target) == (expected, 0, before)
    site.limit = 1
    assert found(site.round(adopt=True))["cleanup.policy"] == "waits-for-second-round", "it deletes records"
    site.clock.shift_ms += CONFIRM_MS
    report = site.round(adopt=True)
    assert (report.changed, report.is_in_step, site.target) == (1, True, site.source)
    site.source["retention.ms"] = "10"
    assert site.round().is_in_step
    assert site.target == site.source


def test_a_value_that_the_flow_did_not_set_is_not_reset(site: Site) -> None:
    site.source["retention.ms"] = site.target["retention.ms"] = "5"
    assert site.round().is_in_step
    del site.source["retention.ms"]
    report = site.round()
    assert (found(report), site.target) == ({"retention.ms": "not-set-by-flow"}, {"retention.ms": "5"})
    assert site.round(adopt=True).is_in_step
    assert site.target == {}


@pytest.mark.parametrize("by", ["reset on both", "adopted there", "adopted back"])
def test_with_flows_both_ways_a_reset_on_the_side_that_copied_the_value_is_left(site: Site, by: str) -> None:
    def rounds() -> list[dict[str, str | None]]:
        return [found(site.round()), found(site.round_back())]

    assert rounds() == [{}, {}]
    site.source["retention.ms"] = "5"
    rounds()
    assert site.target == {"retention.ms": "5"}
    assert rounds() == [{}, {}]
    del site.target["retention.ms"]
    for _ in range(2):
        assert rounds() == [{"retention.ms": "changed-on-target"}, {"retention.ms": "not-set-by-flow"}]
    assert (site.source, site.target) == ({"retention.ms": "5"}, {})
    if by == "reset on both":
        del site.source["retention.ms"]
    else:
        assert (site.round if by == "adopted there" else site.round_back)(adopt=True).is_in_step
    assert rounds() == [{}, {}]
    value = {"retention.ms": "5"} if by == "adopted there" else {}
    assert (site.source, site.target) == (value, value)


def test_a_topic_that_the_flow_has_created_is_its_own(site: Site) -> None:
    site.source["retention.ms"] = site.target["retention.ms"] = "5"
    assert site.round(created={TARGET: {"retention.ms": "5"}}).is_in_step
    del site.source["retention.ms"]
    assert site.round().changed == 1
    assert site.target == {}


def test_of_a_topic_that_was_made_again_nothing_is_known(site: Site) -> None:
    site.source["retention.ms"] = "5"
    site.round()
    site.pair.target.add_topic(TARGET)
    assert found(site.round()) == {"retention.ms": "not-owned"}
    site.own(site.pair.target, FLOW, TARGET, site.pair.source, "t")
    site.pair.target.topics[TARGET].configs["retention.ms"] = "6"
    assert found(site.round()) == {"retention.ms": "differed-before"}


def test_excluded_keys_are_left_and_overrides_win(site: Site) -> None:
    site.round()
    site.source |= {"min.insync.replicas": "3", "retention.ms": "5"}
    site.overrides = {"retention.ms": "7", "min.compaction.lag.ms": "1"}
    assert site.round().is_in_step
    assert site.target == {"retention.ms": "7", "min.compaction.lag.ms": "1"}
    site.target["retention.ms"] = "8"
    assert site.round().changed == 1, "an override holds in any case"
    site.overrides = {}
    assert site.round().is_in_step
    assert site.target == {"retention.ms": "5"}
    site.target["min.insync.replicas"] = "2"
    assert site.round(adopt=True).differences == ()
    assert site.target == {"retention.ms": "5", "min.insync.replicas": "2"}


def test_defaults_of_brokers_are_no_differences(site: Site) -> None:
    site.pair.source.admin.broker_configs[""] = {"log.retention.ms": "77"}
    report = site.round()
    assert (report.differences, site.target) == ((), {})


def test_a_refused_value_is_reported_and_the_rest_is_applied(site: Site) -> None:
    site.round()
    site.source |= {"vendor.setting": "on", "retention.ms": "5"}
    alignment = site.alignment()
    warnings = set[str]()
    for number in range(3):
        report = alignment.round()
        assert report.changed == (1 if number == 0 else 0)
        (held,) = report.held
        assert (held.subject.key, held.reason) == ("vendor.setting", Failure.REFUSED)
        assert "Unknown config name" in held.detail
        warnings.update(report.warnings())
    assert len(warnings) == 1, "the same line in each round"
    assert site.target == {"retention.ms": "5"}
    asked = len(site.pair.target.calls(Api.INCREMENTAL_ALTER_CONFIGS))
    alignment.round()
    assert len(site.pair.target.calls(Api.INCREMENTAL_ALTER_CONFIGS)) == asked, "it is not tried in each round"


def test_without_permission_nothing_is_changed_and_it_is_reported(site: Site) -> None:
    site.round()
    site.source |= {"retention.ms": "5", "max.message.bytes": "2000000"}
    denied = Action(errors={TARGET: errors.TOPIC_AUTHORIZATION_FAILED})
    site.pair.target.control.on(Api.INCREMENTAL_ALTER_CONFIGS, denied, times=1)
    report = site.round()
    assert (set(found(report).values()), report.changed, site.target) == ({"unauthorized"}, 0, {})
    assert site.round().is_in_step


def test_a_configuration_that_cannot_be_read_is_a_problem_of_its_topic(site: Site) -> None:
    site.pair.source.add_topic("u")
    site.pair.target.add_topic("paris.u")
    site.round()
    site.pair.source.topics["u"].configs["retention.ms"] = site.source["retention.ms"] = "5"
    denied = Action(errors={"u": errors.TOPIC_AUTHORIZATION_FAILED})
    site.pair.source.control.on(Api.DESCRIBE_CONFIGS, denied)
    report = site.round()
    assert report.problems == (
        "the configuration of source topic u cannot be read: the permission DescribeConfigs is missing",
    )
    assert (site.target, report.is_in_step) == ({"retention.ms": "5"}, False)


def test_a_look_changes_nothing(site: Site) -> None:
    site.round()
    site.source["retention.ms"] = "5"
    end = site.pair.target.log(inventory_topic_of(FLOW)).end_offset
    report = site.round(write=False)
    assert (found(report), report.changed, report.is_in_step) == ({"retention.ms": None}, 0, False)
    assert (site.target, site.pair.target.log(inventory_topic_of(FLOW)).end_offset) == ({}, end)


def test_a_look_needs_no_inventory_topic_and_a_change_does(site: Site) -> None:
    del site.pair.target.topics[inventory_topic_of(FLOW)]
    site.source["retention.ms"] = "5"
    assert found(site.round(write=False)) == {"retention.ms": "not-owned"}
    with pytest.raises(KafkaError, match="there is no topic mirror-inventory"):
        site.round()


@pytest.mark.parametrize("made", [False, True])
def test_a_change_that_was_interrupted_is_continued(site: Site, monkeypatch: pytest.MonkeyPatch, made: bool) -> None:
    site.round()
    site.source["retention.ms"] = "5"

    with killed_while_it_makes(monkeypatch, ConfigAlignment, made=made):
        site.round()
    site.source["retention.ms"] = "6"
    report = site.round()
    assert (report.changed, report.is_in_step, site.target) == (1, True, {"retention.ms": "6"})


def test_what_a_running_copy_depends_on_waits_for_the_next_start(site: Site) -> None:
    site.round()
    site.source |= {"cleanup.policy": "compact", "retention.ms": "5"}
    assert found(site.round(beside_copies=True, write=False))["cleanup.policy"] == "over-limit"
    site.limit = 1
    report = site.round(beside_copies=True)
    assert (found(report), site.target) == (
        {"cleanup.policy": "waits-for-restart", "retention.ms": None},
        {"retention.ms": "5"},
    )
    site.clock.shift_ms += CONFIRM_MS
    assert site.round().is_in_step
    assert site.target == site.source


def test_an_earlier_writer_is_fenced_and_changes_nothing(site: Site) -> None:
    first = site.alignment()
    first.round()
    site.round()
    site.source["retention.ms"] = "5"
    with pytest.raises(Fenced):
        first.round()
    assert site.target == {}
    assert first.round().is_in_step


def test_many_topics_take_a_few_requests(site: Site) -> None:
    for number in range(1200):
        site.pair.source.add_topic(f"u{number}").configs["retention.ms"] = "5"
        site.pair.target.add_topic(f"paris.u{number}")
    site.own_many(f"u{number}" for number in range(1200))
    site.round()
    before = len(site.pair.target.calls(Api.DESCRIBE_CONFIGS)), alterations(site)
    assert site.round(adopt=True).changed == 1200
    assert (len(site.pair.target.calls(Api.DESCRIBE_CONFIGS)), alterations(site)) == (before[0] + 3, before[1] + 3)
