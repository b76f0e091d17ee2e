"""Rounds over two clusters. Real clients, brokers in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

import pytest

from mirror.alignment import acls, reconciler
from mirror.alignment.acl_selection import AclRules
from mirror.alignment.acls import AclAlignment
from mirror.alignment.differences import KindReport
from mirror.alignment.inventory import FlowInventory
from mirror.alignment.owned_topics import adopt
from mirror.alignment.reconciler import Reconciler
from mirror.client import AclBinding, AclOperation, AclPermission, Admin
from mirror.errors import Fenced, KafkaError, KafkaTimeout
from mirror.observation import Side, Sides
from mirror.relay.progress.flow_topic import inventory_topic_of
from mirror.runtime.clock import SystemClock
from mirror.wire.api import Api
from tests.alignment.killed_rounds import killed_while_it_makes
from tests.alignment.permissions.authorizer import group, named_by, topic
from tests.fakes import errors
from tests.fakes.api_admin import FakeGroup
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.relay.fake_pair import FLOW, FakePair

COPY = topic("paris.t")
WRITE = AclOperation.WRITE


class AclRounds:
    """The rounds of a run about ACLs."""

    def __init__(self, site: Site, flow: str, rules: AclRules, others: Collection[str]) -> None:
        options, clock = {"bootstrap.servers": site.pair.target.bootstrap}, SystemClock()
        self._site = site
        self._inventory = FlowInventory(options, flow, clock)
        self.kind = AclAlignment(
            flow, options, self._inventory.records, rules, clock, others, lambda *_: site.kept_groups
        )
        self._reconciler = Reconciler(self._inventory, clock)

    def close(self) -> None:
        self._inventory.close()

    def round(self, *, write: bool = True, adopt: bool = False) -> KindReport:
        self.kind.rules = replace(self.kind.rules, adopt=adopt)
        sides = Sides(Side("paris", self._site.source), Side("berlin", self._site.target))
        return self._reconciler.round(self.kind, sides, write=write)


class Site:
    """Topics ``t`` and ``paris.t``, the flow's inventory topic, and ACLs on both sides."""

    def __init__(self, pair: FakePair) -> None:
        self.pair = pair
        pair.target.add_topic(inventory_topic_of(FLOW))
        self.source, self.target = (Admin({"bootstrap.servers": each.bootstrap}) for each in (pair.source, pair.target))
        self.takes_group: Callable[[str], bool] | None = None
        self.kept_groups: set[str] | None = set()
        self.own("t")
        self._open: list[AclRounds] = []

    def close(self) -> None:
        for one in self._open:
            one.close()
        self.source.close()
        self.target.close()

    def own(self, topic: str) -> None:
        """The copy of this topic, as it is now, is the flow's."""
        copy = f"paris.{topic}"
        adopt({"bootstrap.servers": self.pair.target.bootstrap}, FLOW, self.target.describe_topics([copy]))

    def alignment(self, flow: str = FLOW, others: Collection[str] = ()) -> AclRounds:
        """As of a run that begins now."""
        rules = AclRules("paris.{}".format, named_by("paris.{}".format, "paris."), "paris.", ("",), self.takes_group)
        made = AclRounds(self, flow, rules, others)
        self._open.append(made)
        return self._open[-1]

    def round(self, *, write: bool = True, adopt: bool = False) -> KindReport:
        """One round of a run of its own."""
        return self.alignment().round(write=write, adopt=adopt)

    def changes(self) -> int:
        """How many requests may have changed ACLs of the target."""
        return sum(len(self.pair.target.calls(api)) for api in (Api.CREATE_ACLS, Api.DELETE_ACLS))


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site(FakePair(monkeypatch))
    yield site
    site.close()


def on(cluster: FakeCluster) -> set[AclBinding]:
    assert cluster.admin.acls is not None
    found = set()
    for acl in cluster.admin.acls:
        made = group if acl.resource_type == 3 else topic
        host, principal = acl.host, acl.principal
        denied, prefixed = acl.permission_type == AclPermission.DENY, acl.resource_pattern_type == 4
        operation = AclOperation(acl.operation)
        found.add(made(acl.resource_name, operation, principal=principal, deny=denied, prefixed=prefixed, host=host))
    return found


def reasons(report: KindReport) -> dict[AclBinding, str]:
    return {one.subject: str(one.change or one.reason) for one in report.differences}


def test_what_the_source_creates_and_deletes_is_followed(site: Site) -> None:
    given = [topic("t"), topic("t", WRITE), topic("t", deny=True, principal="User:bob"), topic("x-", prefixed=True)]
    site.source.create_acls(given)
    report = site.round()
    assert (report.counts["created"], report.counts["left_out"], report.is_in_step) == (3, 1, True)
    wanted = {COPY, topic("paris.t", deny=True, principal="User:bob"), topic("paris.x-", prefixed=True)}
    assert on(site.pair.target) == wanted
    before = site.changes(), site.pair.target.log(inventory_topic_of(FLOW)).end_offset
    assert site.round().differences == ()
    assert site.changes() == before[0]

    site.pair.source.admin.acls = []
    report = site.round()
    assert (report.counts["deleted"], report.is_in_step, on(site.pair.target)) == (3, True, set())
    assert site.round().differences == ()


def test_what_others_have_created_on_the_target_is_never_deleted(site: Site) -> None:
    own = topic("paris.t", WRITE)
    site.target.create_acls([own, COPY])
    site.source.create_acls([topic("t")])
    for _ in range(2):
        report = site.round()
        assert (reasons(report), report.is_in_step) == ({own: "only-on-target"}, True)
    site.pair.source.admin.acls = []
    for _ in range(2):
        assert site.round().is_in_step
        assert on(site.pair.target) == {own, COPY}


def test_what_differs_in_one_thing_is_another_acl(site: Site) -> None:
    others = {
        topic("paris.t", WRITE),
        topic("paris.t", prefixed=True),
        topic("paris.t", deny=True, principal="User:bob"),
        topic("paris.t", principal="User:bob"),
        topic("paris.t", host="10.0.0.1"),
        topic("paris.u"),
        group("paris.t"),
    }
    site.target.create_acls(others)
    site.source.create_acls([topic("t")])
    assert site.round().counts["created"] == 1
    site.pair.source.admin.acls = []
    assert (site.round().counts["deleted"], on(site.pair.target)) == (1, others)


def test_what_others_have_deleted_on_the_target_is_created_by_hand(site: Site) -> None:
    site.source.create_acls([topic("t")])
    site.round()
    site.pair.target.admin.acls = []
    for _ in range(2):
        report = site.round()
        assert (reasons(report), report.is_in_step) == ({COPY: "removed-on-target"}, False)
    assert site.round(adopt=True).is_in_step
    assert on(site.pair.target) == {COPY}


def test_of_flows_in_both_directions_neither_brings_back_what_the_other_deletes(site: Site) -> None:
    """As if another flow had brought this ACL to the source, and it was deleted where it came from: here."""
    site.source.create_acls([topic("t")])
    site.target.create_acls([COPY])
    site.round()
    site.pair.target.admin.acls = []
    assert reasons(site.round()) == {COPY: "removed-on-target"}
    assert on(site.pair.target) == set()


def test_a_look_changes_nothing(site: Site) -> None:
    site.source.create_acls([topic("t")])
    end = site.pair.target.log(inventory_topic_of(FLOW)).end_offset
    report = site.round(write=False)
    assert (reasons(report), report.is_in_step) == ({COPY: "create"}, False)
    assert (on(site.pair.target), site.pair.target.log(inventory_topic_of(FLOW)).end_offset) == (set(), end)


def test_a_look_needs_no_inventory_topic_and_a_change_does(site: Site) -> None:
    site.pair.write(b"1")
    assert site.pair.copy().outcome.value == "complete"
    del site.pair.target.topics[inventory_topic_of(FLOW)]
    site.source.create_acls([topic("t")])
    assert reasons(site.round(write=False)) == {COPY: "create"}
    with pytest.raises(KafkaError, match="there is no topic mirror-inventory"):
        site.round()


@pytest.mark.parametrize("side", ["source", "target"])
def test_without_an_authorizer_nothing_is_done(site: Site, side: str) -> None:
    cluster, name = (site.pair.source, "paris") if side == "source" else (site.pair.target, "berlin")
    site.source.create_acls([topic("t")])
    site.round()
    cluster.admin.acls = None
    report = site.round()
    line = f"cluster {name} has no authorizer, so no ACLs are brought in step"
    assert (report.off, report.warnings(), report.is_in_step) == (line, (line,), True)
    assert site.pair.target.admin.acls is None or on(site.pair.target) == {COPY}


@pytest.mark.parametrize("side", ["source", "target"])
def test_acls_that_cannot_be_read_are_a_problem(site: Site, side: str) -> None:
    cluster, name = (site.pair.source, "paris") if side == "source" else (site.pair.target, "berlin")
    cluster.control.on(Api.DESCRIBE_ACLS, Action(errors={"acls": errors.CLUSTER_AUTHORIZATION_FAILED}), times=1)
    site.source.create_acls([topic("t")])
    report = site.round()
    line = f"the ACLs of cluster {name} cannot be read: the permission Describe on the cluster is missing"
    assert (report.problems, report.is_in_step, on(site.pair.target)) == ((line,), False, set())
    assert site.round().is_in_step


def test_what_the_target_refuses_is_reported_and_the_rest_is_created(site: Site) -> None:
    site.source.create_acls([topic("t"), topic("u", principal="User:bob")])
    refused = Action(errors={"paris.t": errors.CLUSTER_AUTHORIZATION_FAILED})
    site.pair.target.control.on(Api.CREATE_ACLS, refused, times=1)
    report = site.round()
    assert (reasons(report)[COPY], report.counts["created"]) == ("unauthorized", 1)
    assert on(site.pair.target) == {topic("paris.u", principal="User:bob")}
    site.target.create_acls([COPY])
    site.pair.source.admin.acls = []
    site.round()
    assert on(site.pair.target) == {COPY}, "it was created by others, and not by the flow"


def test_nothing_is_allowed_before_what_limits_it_is_denied(site: Site) -> None:
    denial = topic("t", deny=True, host="10.0.0.1")
    site.source.create_acls([topic("t"), denial])
    refusal = errors.CLUSTER_AUTHORIZATION_FAILED
    site.pair.target.control.on(Api.CREATE_ACLS, Action(errors={"paris.t": refusal}), times=1)
    report = site.round()
    assert reasons(report) == {COPY: "waits-for-denial", denial._replace(name="paris.t"): "unauthorized"}
    assert on(site.pair.target) == set()
    assert site.round().counts["created"] == 2

    site.pair.source.admin.acls = []
    site.pair.target.control.on(Api.DELETE_ACLS, Action(errors={"paris.t": refusal}), times=1)
    assert reasons(site.round()) == {COPY: "unauthorized", denial._replace(name="paris.t"): "stays-for-now"}
    assert on(site.pair.target) == {COPY, denial._replace(name="paris.t")}
    assert site.round().counts["deleted"] == 2


@pytest.mark.parametrize("deny", [False, True])
def test_a_prefix_stays_until_the_target_takes_what_replaces_it(site: Site, deny: bool) -> None:
    site.source.create_acls([topic("t", deny=deny, prefixed=True)])
    site.round()
    assert on(site.pair.target) == {topic("paris.t", deny=deny, prefixed=True)}
    site.pair.target.add_topic("paris.t-of-others")
    refused = Action(errors={"paris.t": errors.CLUSTER_AUTHORIZATION_FAILED})
    site.pair.target.control.on(Api.CREATE_ACLS, refused, times=1)
    assert reasons(site.round())[topic("paris.t", deny=deny, prefixed=True)] == "stays-for-now"
    site.round()
    assert on(site.pair.target) == {topic("paris.t", deny=deny)}


@pytest.mark.parametrize("made", [False, True])
def test_a_change_that_was_interrupted_is_continued(site: Site, monkeypatch: pytest.MonkeyPatch, made: bool) -> None:
    site.source.create_acls([topic("t")])

    with killed_while_it_makes(monkeypatch, AclAlignment, made=made):
        site.round()
    assert on(site.pair.target) == ({COPY} if made else set())
    assert site.round().is_in_step
    assert on(site.pair.target) == {COPY}
    site.pair.source.admin.acls = []
    report = site.round()
    if made:
        assert reasons(report) == {COPY: "creation-interrupted"}, "others may have created it"
        assert on(site.pair.target) == {COPY}
        site.round(adopt=True)
    assert on(site.pair.target) == set()


def test_what_another_flow_of_the_file_wants_stays(site: Site) -> None:
    """Two flows bring the ACLs of groups, which have the same names: the first has created it."""
    site.pair.target.add_topic(inventory_topic_of("other"))
    site.takes_group, site.kept_groups = lambda _: True, {"billing"}
    site.source.create_acls([group("billing")])
    first, second = site.alignment(others=["other"]), site.alignment("other", others=[FLOW])
    assert (first.round().counts["created"], second.round().counts["created"]) == (1, 0)
    site.pair.source.admin.acls = []
    report = first.round()
    assert (reasons(report), report.is_in_step) == ({group("billing"): "wanted-by-other-flow"}, True)
    assert report.differences[0].detail == "other"
    assert on(site.pair.target) == {group("billing")}
    second.round()
    assert first.round().counts["deleted"] == 1
    assert on(site.pair.target) == set()


def test_two_flows_that_have_created_an_acl_do_not_keep_it_for_each_other(site: Site) -> None:
    """Both had begun before it was there, so each has it in its inventory as created."""
    site.pair.target.add_topic(inventory_topic_of("other"))
    site.takes_group, site.kept_groups = lambda _: True, {"billing"}
    site.source.create_acls([group("billing")])
    first, second = site.alignment(others=["other"]), site.alignment("other", others=[FLOW])
    assert first.round().counts["created"] == 1
    site.pair.target.admin.acls = []
    assert second.round().counts["created"] == 1
    site.pair.source.admin.acls = []
    assert reasons(first.round()) == {group("billing"): "wanted-by-other-flow"}
    assert second.round().counts["deleted"] == 1
    assert on(site.pair.target) == set()


def test_a_source_that_shows_no_topics_for_a_moment_loses_no_acl(site: Site) -> None:
    site.pair.target.add_topic("paris.own", 1)
    site.pair.source.add_topic("own", 1)
    site.source.create_acls([topic("*")])
    alignment = site.alignment()
    alignment.kind.rules = AclRules({"t": "paris.t"}.get, {"paris.t": "t"}.get, "paris.", ("",))
    assert alignment.round().counts["created"] == 1
    topics = dict(site.pair.source.topics)
    site.pair.source.topics.clear()
    assert alignment.round().differences == ()
    site.pair.source.topics.update(topics)
    assert on(site.pair.target) == {COPY}


def test_groups_whose_positions_the_flow_keeps_are_brought_if_asked(site: Site) -> None:
    site.kept_groups = {"books", "billing"}
    site.pair.source.admin.groups["bins"] = FakeGroup()
    site.source.create_acls([group("billing"), group("b", prefixed=True), group("other")])
    assert (site.round().compared, on(site.pair.target)) == (0, set())
    site.takes_group = lambda name: name.startswith("b")
    line = "= ACLs of group bins are left out: the flow keeps no position of it"
    assert line in site.round().lines()
    assert on(site.pair.target) == {group("billing"), group("books")}
    site.kept_groups = {"billing"}
    site.round()
    assert on(site.pair.target) == {group("billing")}
    site.pair.source.admin.acls = []
    site.round()
    assert on(site.pair.target) == set()


def test_a_topic_that_others_have_made_again_loses_the_flow_s_acls(site: Site) -> None:
    """Its owner has not asked for them. Those of a copy whose progress only the progress topic has stay."""
    site.source.create_acls([topic("t"), topic("t", deny=True, principal="User:*")])
    assert site.round().counts["created"] == 2
    site.pair.target.add_topic("paris.t")
    report = site.round()
    assert (report.counts["deleted"], on(site.pair.target)) == (2, set())
    line = "= ACLs of topic paris.t are left out: the flow has not created it and copies nothing into it"
    assert list(report.lines())[-1] == line
    assert report.summary()["not_own"] == {"topic": 1}
    site.pair.write(b"1")
    assert site.pair.copy().outcome.value == "complete"
    site.pair.target.groups.clear()
    assert (site.round().counts["created"], len(on(site.pair.target))) == (2, 2)


def test_an_earlier_run_is_fenced_and_changes_nothing(site: Site) -> None:
    first = site.alignment()
    first.round()
    site.round()
    site.source.create_acls([topic("t")])
    with pytest.raises(Fenced):
        first.round()
    assert on(site.pair.target) == set()
    assert first.round().is_in_step


def test_many_acls_take_a_few_requests(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls, "_AT_ONCE", 20)
    site.source.create_acls([topic(f"t{number}") for number in range(45)])
    before = site.changes()
    assert (site.round().counts["created"], site.changes() - before) == (45, 3)
    site.pair.source.admin.acls = []
    assert (site.round().counts["deleted"], site.changes() - before) == (45, 6)


def test_nothing_is_sent_when_a_later_run_may_have_begun(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "FENCED_MS", 0)
    site.source.create_acls([topic("t")])
    with pytest.raises(KafkaTimeout, match="not sent within 0 ms after its intent"):
        site.round()
    assert on(site.pair.target) == set()
