"""The runbook of a planned migration, on clusters that obey ACLs, while clients write and read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.polling import eventually
from tests.runbooks.conftest import Cities
from tests.runbooks.page import SATURDAY, SUNDAY, Reader, blocks, environment
from tests.switch.guarded_pair import Writer, as_user, read_some

pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(900)]


def test_clients_move_by_the_commands_of_the_page(cities: Cities, tmp_path: Path) -> None:
    paris, berlin = cities.paris, cities.berlin
    reader = Reader(SATURDAY, tmp_path, cities.names, environment())
    reader.write("mirror.toml", "".join(blocks(SATURDAY, "toml")))
    writer = Writer(as_user(paris, "alice"), "before")
    eventually(lambda: len(writer.acknowledged) > 300, what="records", within_s=60)
    read = read_some(as_user(paris, "bob"), 50)
    for beginning in ("mirror doctor", "mirror run", "mirror run", *["mirror cutover saturday"] * 5):
        reader.type(beginning)
    acknowledged = writer.stop()
    writer = Writer(as_user(berlin, "alice"), "moved")
    eventually(lambda: len(writer.acknowledged) > 100, what="records", within_s=60)
    for beginning in ("mirror run --flow paris-berlin", "mirror run --flow berlin-paris"):
        reader.type(beginning)
    acknowledged += writer.stop()
    read += read_some(as_user(berlin, "bob"), len(acknowledged) - len(read) + 1)
    assert sorted(read) == sorted(acknowledged)
    assert reader.is_done


def test_clients_return_by_the_commands_of_the_page(cities: Cities, tmp_path: Path) -> None:
    """A group has read a part of what clients have written on berlin."""
    paris, berlin = cities.paris, cities.berlin
    saturday, sunday = (Reader(title, tmp_path, cities.names, environment()) for title in (SATURDAY, SUNDAY))
    saturday.write("mirror.toml", "".join([*blocks(SATURDAY, "toml"), *blocks(SUNDAY, "toml")]))
    writer = Writer(as_user(paris, "alice"), "before")
    eventually(lambda: len(writer.acknowledged) > 300, what="records", within_s=60)
    read = read_some(as_user(paris, "bob"), 50)
    for _ in range(2):
        saturday.skip_to("mirror run")
        saturday.type("mirror run")
    saturday.skip_to("mirror cutover saturday")
    saturday.type("mirror cutover saturday")
    acknowledged = writer.stop()
    writer = Writer(as_user(berlin, "alice"), "moved")
    eventually(lambda: len(writer.acknowledged) > 100, what="records", within_s=60)
    read += read_some(as_user(berlin, "bob"), len(acknowledged) - len(read) + 50)
    for beginning in ("mirror run", "mirror release", "mirror cutover sunday", "mirror cutover sunday"):
        sunday.type(beginning)
    acknowledged += writer.stop()
    writer = Writer(as_user(paris, "alice"), "after")
    eventually(lambda: len(writer.acknowledged) > 100, what="records", within_s=60)
    acknowledged += writer.stop()
    read += read_some(as_user(paris, "bob"), len(acknowledged) - len(read) + 1)
    assert sorted(read) == sorted(acknowledged)
    assert sunday.is_done
