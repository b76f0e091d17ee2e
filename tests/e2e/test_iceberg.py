"""An Iceberg sink of Kafka Connect that is stopped on the source continues on the target, into the same table."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from tests.e2e.broker_side import Side
from tests.e2e.connect_worker import START_S, Worker
from tests.e2e.engines import iceberg_sink_home, iceberg_table
from tests.e2e.site import Run, Site, flow
from tests.e2e.test_groups import consumed_from
from tests.polling import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

PARTITIONS: Final = 2
TABLE: Final = "db.orders"
_COMMITS_S: Final = 60.0


def _write(side: Side, topic: str, numbers: Iterator[int]) -> list[int]:
    """Records in transactions, one of which is aborted; returns the numbers of the others."""
    producer = Producer({"bootstrap.servers": side.address, "transactional.id": topic})
    producer.init_transactions()
    committed = list[int]()
    for commit in (True, False, True):
        producer.begin_transaction()
        some = [next(numbers) for _ in range(50)]
        for one in some:
            producer.produce(topic, b'{"id":%d}' % one, partition=one % PARTITIONS)
        producer.flush()  # otherwise what is aborted may not be sent
        if commit:
            producer.commit_transaction()
            committed += some
        else:
            producer.abort_transaction()
    return committed


@contextmanager
def _sink(site: Site, side: Side, name: str, topic: str, control: str) -> Iterator[Worker]:
    """A worker with the sink; both are stopped in order, unless the worker was killed."""
    settings = {
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        # A task that has nothing to read answers the coordinator so often.
        "offset.flush.interval.ms": "1000",
        "plugin.discovery": "service_load",
        "plugin.path": str(iceberg_sink_home()),
        "connector.client.config.override.policy": "All",
    }
    connector = {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": f"{PARTITIONS}",
        "topics": topic,
        "consumer.override.isolation.level": "read_committed",
        "iceberg.tables": TABLE,
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.catalog.type": "hadoop",
        "iceberg.catalog.warehouse": _warehouse(site).as_uri(),
        "iceberg.control.topic": control,
        "iceberg.control.commit.interval-ms": "1000",
        "iceberg.control.commit.timeout-ms": "10000",
    }
    worker = Worker(site.folder, f"worker-{topic}", side.address, f"workers-{name}", settings)
    try:
        worker.run(name, connector)
        yield worker
        if worker.process.alive():
            worker.stop(name)
    finally:
        worker.close()


def _warehouse(site: Site) -> Path:
    return site.folder / "warehouse"


def _metadata(site: Site) -> Path:
    """The newest metadata of the table."""
    files = _warehouse(site).glob("db/orders/metadata/v*.metadata.json")
    return max(files, key=lambda path: int(path.name.split(".")[0][1:]))


def _rows(site: Site) -> int:
    """How many rows the table's present snapshot says that it has."""
    try:
        table: dict[str, Any] = json.loads(_metadata(site).read_text(encoding="utf-8"))
    except ValueError:  # there is none yet
        return 0
    summaries = [one["summary"] for one in table["snapshots"] if one["snapshot-id"] == table["current-snapshot-id"]]
    return int(summaries[0]["total-records"]) if summaries else 0


def _await(site: Site, rows: int) -> None:
    eventually(lambda: _rows(site) >= rows, within_s=START_S, what=f"{rows} rows", every_s=0.2)


def _positions(site: Site) -> Run:
    command = [site.python, "-P", "-m", "mirror.cli", "positions", "iceberg", "--config", str(site.config)]
    return site.finish(site.launch([*command, str(_metadata(site))]))


@pytest.mark.parametrize("copies_control", [True, False], ids=["its control topic is copied", "another control topic"])
def test_a_sink_continues_on_the_target(
    site: Site, source: Side, target: Side, unique: Callable[[str], str], copies_control: bool
) -> None:
    topic, control, name, numbers = unique("orders"), unique("control"), unique("sink"), count()
    topics = [topic, control] if copies_control else [topic]
    groups = f'[flows.{name}.groups]\ninclude = ["connect-{name}.*"]\nexclude = []'
    site.write({"a": source.address, "b": target.address}, {name: flow("a", "b", topics, groups)})
    source.create(topic, PARTITIONS)
    source.create(control)
    written = _write(source, topic, numbers)
    with _sink(site, source, name, topic, control) as worker:
        _await(site, len(written))
        before = consumed_from(source, f"connect-{name}", topic)
        written += _write(source, topic, numbers)
        if copies_control:
            # Its tasks have written and committed more than is in the table, or have not.
            eventually(lambda: consumed_from(source, f"connect-{name}", topic) > before, what="a commit of its group")
            worker.process.send(signal.SIGKILL)
            eventually(lambda: not worker.process.alive(), what="its end")
        else:
            _await(site, len(written))
    written += _write(source, topic, numbers)
    assert site.run().status == 0
    found = _positions(site)
    if copies_control:
        there = f"a.{control}"
        assert found.status == 0, found.err
        said = re.search(
            r"set iceberg.control.topic = (\S+), and commit an empty snapshot with the property"
            r" (\S+) = (\S+)",
            " ".join(found.err.split()),
        )
        assert said is not None, found.err
        assert said[1] == there
        iceberg_table(site.folder, _warehouse(site).as_uri(), TABLE, said[2], said[3])
    else:
        there = unique("control")
        target.create(there)
        assert found.status == 3
        assert "give the sink another iceberg.control.topic on the target" in found.err
    with _sink(site, target, name, f"a.{topic}", there):
        _await(site, len(written))
        written += _write(source, topic, numbers)
        assert site.run().status == 0
        _await(site, len(written))
    rows = iceberg_table(site.folder, _warehouse(site).as_uri(), TABLE)
    assert sorted(map(int, rows.split())) == sorted(written)
