"""``mirror drift``, ``apply`` and ``plan`` for a flow that deletes topics. Real clients, brokers in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.spark.preflight import drift
from tests.alignment.test_commands_on_fakes import Site
from tests.relay.fake_pair import FakePair


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Site:
    """Source topics ``t`` and ``u`` whose copies the flow has created, and a wait that takes no time."""
    site = Site(FakePair(monkeypatch), tmp_path / "mirror.toml")
    site.pair.source.add_topic("u")
    site.pair.source.add_topic("another")
    site.file.write_text(site.file.read_text().replace('["t"]', '["[tu]"]') + 'on-topic-deleted = "delete"\n')
    monkeypatch.setattr(drift, "CONFIRM_MS", 0)
    monkeypatch.setattr("mirror.alignment.deletion_decision.CONFIRM_MS", 0)
    assert site.ask("apply")[0] == 0
    assert {"paris.t", "paris.u"} <= site.pair.target.topics.keys()
    return site


def test_a_deletion_is_drift_and_part_of_a_plan_until_it_is_applied(site: Site) -> None:
    del site.pair.source.topics["t"]
    line = "- topic paris.t is deleted with all its records: source topic t does not exist"
    said = site.invoke("drift")
    assert (said.exit_code, line in said.stdout.splitlines()) == (3, True)
    assert f"on berlin: {line}" in site.invoke("plan").stdout
    for command in ("drift", "plan"):
        status, found = site.ask(command)
        (topic,) = found["deletions"]["differences"]
        assert (status, topic["topic"], topic["change"], topic["done"]) == (3, "paris.t", "delete", False)
        assert found["configs"]["in_step"]
    assert "paris.t" in site.pair.target.topics
    status, found = site.ask("apply")
    assert (status, found["in_step"], found["deletions"]["changed"]) == (0, True, 1)
    assert "paris.t" not in site.pair.target.topics
    assert site.ask("drift")[0] == 0


def test_deletions_over_the_limit_are_made_by_hand(site: Site) -> None:
    for name in ("t", "u"):
        del site.pair.source.topics[name]
    site.pair.source.add_topic("tu")
    site.file.write_text(site.file.read_text().replace('["[tu]"]', '["[tu]+"]'))
    status, found = site.ask("apply")
    assert (status, {one["reason"] for one in found["deletions"]["differences"]}) == (3, {"over-limit"})
    assert "--max-deletions 2 deletes them" in site.invoke("drift").stdout
    assert site.ask("apply", "--max-deletions", "2")[0] == 0
    assert not {"paris.t", "paris.u"} & site.pair.target.topics.keys()


def test_topics_are_kept_unless_the_flow_says_so(site: Site) -> None:
    site.file.write_text(site.file.read_text().replace('= "delete"', '= "keep"'))
    del site.pair.source.topics["t"]
    with site.file.open("a") as file:
        file.write('configs = "create"\n')
    result = site.invoke("apply", "--max-deletions", "5")
    assert result.exit_code == 0
    assert 'warning: flow flow: --max-deletions has no effect: on-topic-deleted is "keep"' in result.stderr
    assert "paris.t" in site.pair.target.topics
    assert site.ask("drift")[1]["deletions"]["differences"] == []


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ('origin = "local"\n', 'must be "keep" with origin = "local": others produce into the same topics'),
        ("max-deletions = 0\n", "max-deletions = 0: must be a whole number from 1"),
    ],
)
def test_what_contradicts_deletions_is_refused(site: Site, more: str, problem: str) -> None:
    site.file.write_text(site.file.read_text() + more)
    result = site.invoke("drift")
    assert result.exit_code == 1
    assert problem in result.stderr


def test_a_limit_without_deletions_is_refused(site: Site) -> None:
    text = site.file.read_text().replace('on-topic-deleted = "delete"', 'configs = "create"\nmax-deletions = 3')
    site.file.write_text(text)
    assert 'has no effect unless on-topic-deleted = "delete"' in site.invoke("drift").stderr
