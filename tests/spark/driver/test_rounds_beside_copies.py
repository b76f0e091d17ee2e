"""ACLs and deletions while a stream runs: its rounds, in their thread. Real clients, brokers in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mirror.alignment.owned_topics import adopt
from mirror.alignment.sync_state import DELETIONS
from mirror.client import AclBinding, AclOperation, Admin
from mirror.config.load import load
from mirror.config.models import FlowConfig, MirrorConfig
from mirror.relay.progress.flow_topic import inventory_topic_of
from mirror.spark.driver.rounds.periodic_rounds import PeriodicRounds
from mirror.spark.driver.rounds.reconciling import CreatedTopics, Reconciling, target_rounds
from mirror.spark.preflight.flow_reconciler import KindReports
from tests.alignment.deletions.deletion_site import DeletionSite
from tests.alignment.permissions.authorizer import topic
from tests.polling import eventually
from tests.relay.fake_pair import FLOW, FakePair

INTERVAL_MS = 20
WITHIN_S = 60.0


def loading(pair: FakePair, file: Path, lines: str) -> Callable[[], tuple[MirrorConfig, FlowConfig]]:
    """What a stream loads before each round."""
    file.write_text(
        f'[clusters.paris]\n"bootstrap.servers" = "{pair.source.bootstrap}"\n'
        f'[clusters.berlin]\n"bootstrap.servers" = "{pair.target.bootstrap}"\n'
        f'[flows.{FLOW}]\nsource = "paris"\ntarget = "berlin"\ntopics = ["[tuv]"]\n{lines}\n'
    )

    def both() -> tuple[MirrorConfig, FlowConfig]:
        config = load(file)
        return config, config.flows[FLOW]

    return both


def test_acls_of_the_source_come_and_go_while_a_stream_runs_and_those_of_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, reports, warned = FakePair(monkeypatch), list[KindReports](), list[str]()
    pair.target.add_topic(inventory_topic_of(FLOW))
    both = loading(pair, tmp_path / "mirror.toml", "[flows.flow.acls]")
    others = topic("paris.t", AclOperation.WRITE, principal="User:bob")
    with (
        Admin({"bootstrap.servers": pair.source.bootstrap}) as source,
        Admin({"bootstrap.servers": pair.target.bootstrap}) as target,
    ):

        def become(*expected: AclBinding) -> None:
            eventually(lambda: set(target.describe_acls()) == set(expected), within_s=WITHIN_S, what=f"{expected}")

        adopt({"bootstrap.servers": pair.target.bootstrap}, FLOW, target.describe_topics(["paris.t"]))
        target.create_acls([others])
        kind = replace(target_rounds(both()[1], reports.append, wait_first=True), interval_ms=INTERVAL_MS)
        rounds = PeriodicRounds(lambda: Reconciling(*both(), CreatedTopics(), beside_copies=True), kind, warned.append)
        with rounds:
            eventually(lambda: reports, within_s=WITHIN_S, what="a round")
            source.create_acls([topic("t")])
            become(others, topic("paris.t"))
            pair.source.admin.acls = []
            become(others)
    assert warned == []


@pytest.fixture(autouse=True)
def without_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds take a tenth of a core by themselves."""
    monkeypatch.setattr("mirror.spark.driver.rounds.periodic_rounds.ROUND_SHARE", 0)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeletionSite]:
    monkeypatch.setattr("mirror.alignment.deletion_decision.CONFIRM_MS", 50)
    made = DeletionSite(FakePair(monkeypatch))
    yield made
    made.close()


def test_a_stream_deletes_what_the_source_has_deleted_up_to_the_limit_and_nothing_else(
    site: DeletionSite, tmp_path: Path
) -> None:
    """A topic that is created again, a source that shows no topics, and one topic more than the limit."""
    site.prepare()
    source, reports = site.pair.source, list[KindReports]()
    both = loading(site.pair, tmp_path / "mirror.toml", 'on-topic-deleted = "delete"\nmax-deletions = 1')

    def reasons() -> dict[str, int]:
        return dict(reports[-1][DELETIONS].by_reason()) if reports else {}

    def last(by_reason: dict[str, int]) -> None:
        """Wait until several rounds in a row say so: the second one would have deleted."""
        eventually(lambda: reasons() == by_reason, within_s=WITHIN_S, what=f"{by_reason}")
        seen = len(reports)
        eventually(lambda: len(reports) > seen + 3, within_s=WITHIN_S, what="more rounds")
        assert reasons() == by_reason

    def show(*names: str) -> None:
        """Show these topics of the source, all at once."""
        source.topics = {name: everything[name] for name in names}

    kind = replace(target_rounds(both()[1], reports.append, wait_first=True), interval_ms=INTERVAL_MS)
    with PeriodicRounds(lambda: Reconciling(*both(), CreatedTopics(), beside_copies=True), kind, lambda _: None):
        everything = dict(source.topics)
        show("u", "v", "another")
        eventually(lambda: "paris.t" not in site.copies(), within_s=WITHIN_S, what="the end of the copy")

        source.add_topic("u")
        everything |= {"u": source.topics["u"]}
        show("u", "v", "another")
        last({})
        show()
        last({"source-shows-no-topics": 2})
        show("u", "v", "another")
        last({})
        show("u", "another")
        last({"over-limit": 1})
    assert site.copies() == {"paris.u", "paris.v"}
