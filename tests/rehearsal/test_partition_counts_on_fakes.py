"""A target topic with another number of partitions than its source topic: what each command says. Brokers in memory.

The decision is mirror/design/decisions/050-partition-counts.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.relay.progress.flow_topic import group_topic_of
from tests.fakes.cluster import GroupOffset
from tests.groups.sync_site import SOURCE
from tests.relay.fake_pair import FLOW, FakePair

FEWER = "target topic copy has 1 partition, 2 are needed, and nothing shows that it is flow flow's: add them, or mirror"
MORE = "target topic copy: more partitions than the source topic (3, and not 2): nothing is copied into the additional"
KEYS = "only berlin has this partition, with 0 offsets: keys go to other partitions than on paris"
REMEDY = "give the topic of paris as many partitions"


class Site:
    """Topic ``t`` with two partitions, which is copied as ``copy``."""

    def __init__(self, pair: FakePair, file: Path, *, within: bool = False) -> None:
        self.pair, self.file = pair, file
        self.target = pair.source if within else pair.target
        if within:
            for name in [name for name in pair.target.topics if name.startswith("mirror-")]:
                pair.source.add_topic(name)
        pair.source.add_topic("t", 2)
        for partition in (0, 1):
            pair.write(b"1", b"2", partition=partition)
        pair.source.groups["g"][SOURCE] = GroupOffset(1, -1, "")
        self.target.add_topic(group_topic_of(FLOW))
        to = "paris" if within else "berlin"
        file.write_text(
            f'[clusters.paris]\n"bootstrap.servers" = "{pair.source.bootstrap}"\n'
            f'[clusters.berlin]\n"bootstrap.servers" = "{pair.target.bootstrap}"\n'
            f'[flows.{FLOW}]\nsource = "paris"\ntarget = "{to}"\ntopics = ["t"]\nconfigs = "off"\n'
            f'names = {{ "t" = "copy" }}\n[flows.{FLOW}.groups]\n'
        )

    def ask(self, *arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, [*arguments, "--json", "--config", str(self.file)])
        return result.exit_code, result.stdout


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize(("count", "words"), [(1, FEWER), (3, MORE)])
def test_a_plan_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, within: bool, count: int, words: str
) -> None:
    site = Site(FakePair(monkeypatch, partitions=2), tmp_path / "mirror.toml", within=within)
    site.target.add_topic("copy", count)
    status, shown = site.ask("plan")
    assert (status, words in shown) == (3, True), shown
    if count > 2:
        assert "give the source topic as many, or create the target topic with as many as the source has" in shown


@pytest.mark.parametrize(("count", "words"), [(1, [FEWER]), (3, [KEYS, REMEDY])])
def test_no_client_moves_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, count: int, words: list[str]) -> None:
    site = Site(FakePair(monkeypatch, partitions=2), tmp_path / "mirror.toml")
    site.target.add_topic("copy", count)
    status, shown = site.ask("rehearse")
    assert (status, [one for one in words if one not in shown]) == (3, []), shown
