"""What whoever administers the source cannot make a flow allow or deny on its target. Real clients, brokers in memory.

Each test is an attack that has worked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mirror.client import AclOperation
from tests.alignment.permissions.authorizer import group, topic
from tests.alignment.permissions.test_commands_on_fakes import Site
from tests.fakes.api_admin import FakeGroup
from tests.relay.fake_pair import FLOW, FakePair

ALL = AclOperation.ALL
ACLS = "[flows.flow.acls]"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    made = Site(FakePair(monkeypatch), tmp_path / "mirror.toml")
    yield made
    made.source.close()


def own_of_the_target(site: Site, name: str) -> None:
    """A topic that the flow has not created, with a record."""
    site.pair.target.add_topic(name)
    site.pair.target.log(name).append_values(b"own")


@pytest.mark.parametrize("table", [ACLS, f"{ACLS}\nwrite = true"])
def test_the_target_s_own_topic_is_neither_opened_nor_closed(site: Site, table: str) -> None:
    site.write(f'naming = "identity"\n{table}', topics=".*")
    own_of_the_target(site, "payroll")
    site.pair.source.add_topic("payroll")
    site.source.create_acls(
        [topic("payroll"), topic("payroll", ALL), topic("*"), topic("payroll", ALL, principal="User:*", deny=True)]
    )
    site.ask("apply")
    status, found = site.ask("apply")
    assert {acl.name for acl in site.at_target()} == {"t"}, "and there what the literal * allows"
    assert (status, found["not_own"]) == (3, {"topic": 1})
    line = "= ACLs of topic payroll are left out: the flow has not created it and copies nothing into it"
    assert line in site.invoke("drift").stdout


def test_a_topic_that_the_target_creates_later_is_not_open_beforehand(site: Site) -> None:
    site.write(f'naming = "identity"\n{ACLS}', topics="t|payroll")
    site.source.create_acls([topic("payroll"), topic("payroll", ALL, principal="User:*", deny=True)])
    site.ask("apply")
    own_of_the_target(site, "payroll")
    site.ask("apply")
    assert site.at_target() == set()


def test_a_prefix_does_not_cover_the_target_s_own_topic(site: Site) -> None:
    """The source has no topic ``secret``."""
    site.write(ACLS, topics=".*")
    own_of_the_target(site, "paris.secret")
    site.source.create_acls(
        [topic("*"), topic("s", prefixed=True), topic("*", ALL, principal="User:*", deny=True), topic("secret")]
    )
    site.ask("apply")
    assert site.at_target() == {topic("paris.t"), topic("paris.t", ALL, principal="User:*", deny=True)}


def test_a_prefix_ends_when_the_target_has_a_topic_of_its_own_there(site: Site) -> None:
    site.write(ACLS, topics=".*")
    site.source.create_acls([topic("*"), topic("*", principal="User:bob", deny=True)])
    site.ask("apply")
    both = {topic("paris.", prefixed=True), topic("paris.", prefixed=True, principal="User:bob", deny=True)}
    assert site.at_target() == both
    own_of_the_target(site, "paris.secret")
    site.ask("apply")
    assert site.at_target() == {topic("paris.t"), topic("paris.t", principal="User:bob", deny=True)}


@pytest.mark.parametrize("on_source", [False, True])
def test_a_group_of_the_target_s_own_is_neither_opened_nor_closed(site: Site, on_source: bool) -> None:
    """Whether or not the source has one of its name, without a position in a copied topic."""
    site.write(f"[flows.flow.groups]\n{ACLS}\ngroups = true", topics=".*")
    if on_source:
        site.pair.source.admin.groups["billing"] = FakeGroup()
    site.source.create_acls([group("billing"), group("billing", ALL, principal="User:*", deny=True), group("*")])
    assert site.ask("apply")[1]["not_own"] == {"group": 1}
    assert site.at_target() == set()


def test_there_are_no_more_acls_than_the_limit(site: Site) -> None:
    """Each ACL about all topics becomes one for each topic."""
    site.write(f'naming = "identity"\nmax-acls = 20\n{ACLS}', topics=".*")
    for number in range(5):
        site.pair.source.add_topic(f"t-{number}")
    site.source.create_acls([topic("*", principal=f"User:u{number}") for number in range(10)])
    status, found = site.ask("apply")
    assert (status, found["created"], found["not_in_step"]) == (3, 20, {"over-limit": 40})


def test_the_copies_of_another_cluster_are_not_covered(site: Site) -> None:
    """Names of clusters may have dots: topics of ``paris.old`` are under the prefix of ``paris``, and may not exist."""
    site.write(
        f'{ACLS}\n[clusters."paris.old"]\n"bootstrap.servers" = "old.fake:1"\n'
        '[flows.old]\nsource = "paris.old"\ntarget = "berlin"\ntopics = ["orders"]',
        topics=".*",
    )
    site.source.create_acls([topic("*"), topic("t", prefixed=True), topic("old", prefixed=True), topic("old.orders")])
    site.ask("apply", "--flow", FLOW)
    assert site.at_target() == {topic("paris.t"), topic("paris.t", prefixed=True)}
