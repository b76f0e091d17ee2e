"""Whose a target topic is, by evidence about its id. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.alignment.config_bounds import reduces
from mirror.alignment.ownership import Evidence, Standing, is_owned, needs_no_progress, other_source, standing
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.target_log import TargetMark

PROGRESS = Progress(
    offset=7, leader_epoch=0, source_cluster_id="a", topic_id="s", target=TargetMark(topic_id="x", end=7)
)
DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("evidence", "owned"),
    [
        (Evidence(topic_id="x"), False),
        (Evidence(topic_id="x", claimed_ids={"x"}), True),
        (Evidence(topic_id="y", claimed_ids={"x"}), False),
        (Evidence(topic_id="x", progress=[PROGRESS]), True),
        (Evidence(topic_id="y", progress=[PROGRESS]), False),
        (Evidence(topic_id="", progress=[PROGRESS]), True),
        (Evidence(topic_id="x", progress=[replace(PROGRESS, target=TargetMark(topic_id="", end=7))]), True),
        (Evidence(topic_id="x", progress=[replace(PROGRESS, target=None)]), True),
        (Evidence(topic_id="", claimed_ids={"x"}), False),
    ],
)
def test_only_evidence_of_the_present_id_counts(evidence: Evidence, owned: bool) -> None:
    assert is_owned(evidence) is owned
    foreign = {True: Standing.FOREIGN, False: Standing.EMPTY, None: Standing.UNREAD}
    for has_records in (True, False, None):
        expected = Standing.OWNED if owned else foreign[has_records]
        assert standing(replace(evidence, has_records=has_records)) is expected


@pytest.mark.parametrize(
    ("copied", "created_of", "source", "other"),
    [
        ([], "", "orders", ""),
        ([""], "", "orders", ""),
        (["orders"], "", "orders", ""),
        (["clicks"], "", "orders", "clicks"),
        (["clicks"], "", "", ""),
        ([], "clicks", "orders", "clicks"),
        ([""], "clicks", "orders", "clicks"),
        (["orders"], "clicks", "orders", ""),
        (["clicks"], "orders", "orders", "clicks"),
        (["clicks", "orders"], "clicks", "orders", ""),
        (["clicks", ""], "", "orders", "clicks"),
    ],
)
def test_progress_shows_of_which_topic_a_copy_is_before_the_inventory_does(
    copied: list[str], created_of: str, source: str, other: str
) -> None:
    progress = [replace(PROGRESS, source_topic=name) for name in copied]
    evidence = Evidence(topic_id="x", claimed_ids={"x"}, progress=progress, source=source, created_of=created_of)
    assert other_source(evidence) == other
    assert standing(evidence) is (Standing.OF_OTHER if other else Standing.OWNED)
    assert needs_no_progress(evidence) is (source in {"", created_of})


def test_progress_of_an_earlier_topic_of_the_name_does_not_show_the_source() -> None:
    evidence = Evidence(topic_id="y", progress=[replace(PROGRESS, source_topic="clicks")], source="orders")
    assert other_source(evidence) == ""


@pytest.mark.parametrize(("known", "is_of"), [("", True), ("orders", True), ("clicks", False), ("Orders", False)])
def test_progress_without_a_source_topic_is_of_any(known: str, is_of: bool) -> None:
    assert replace(PROGRESS, source_topic=known).is_of_topic("orders") is is_of


@pytest.mark.parametrize(
    ("key", "target", "wanted", "deletes"),
    [
        ("retention.ms", None, "1", True),
        ("retention.ms", str(9 * DAY_MS), str(DAY_MS), False),
        ("retention.ms", str(9 * DAY_MS), str(DAY_MS - 1), True),
        ("retention.ms", "-1", str(DAY_MS - 1), True),
        ("retention.ms", "1000", "2000", False),
        ("retention.ms", "1000", "-1", False),
        ("retention.ms", "1000", None, False),
        ("retention.ms", "1000", "many", True),
        ("retention.bytes", None, "999999999999", True),
        ("retention.bytes", "5", "-1", False),
        ("retention.bytes", "5", None, False),
        ("cleanup.policy", None, "compact", True),
        ("cleanup.policy", "compact", "compact,delete", True),
        ("cleanup.policy", "compact", None, True),
        ("cleanup.policy", "compact,delete", "delete , compact", False),
        ("cleanup.policy", "compact,delete", "delete", False),
        ("cleanup.policy", "", "delete", True),
        ("cleanup.policy", "", None, True),
        ("cleanup.policy", "compact", "", False),
        ("remote.storage.enable", "true", "false", True),
        ("remote.storage.enable", "true", None, True),
        ("remote.storage.enable", None, "true", False),
        ("remote.log.delete.on.disable", None, "true", True),
        ("remote.log.delete.on.disable", "true", "false", False),
        ("remote.log.copy.disable", None, "true", False),
        ("delete.retention.ms", None, "0", True),
        ("min.compaction.lag.ms", "5000", "1", True),
        ("min.compaction.lag.ms", None, "1", False),
        ("max.compaction.lag.ms", None, "700000", True),
        ("segment.ms", None, "600000", False),
        ("max.message.bytes", "9", "5", False),
    ],
)
def test_what_makes_brokers_delete_records(key: str, target: str | None, wanted: str | None, deletes: bool) -> None:
    assert reduces(key, target, wanted, DAY_MS) is deletes
