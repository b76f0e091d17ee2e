"""Topics that transactions couple, as the commands find them on real brokers; confluent-kafka has written them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from mirror.cli.app import app
from tests.copying.pair import End, TwoClusters

pytestmark = [pytest.mark.brokers, pytest.mark.cluster]

LINE = "transactions of producer "


def _write(end: End, producer_id: str, *transactions: Iterable[str]) -> None:
    """Write a record to each partition of the topics of each transaction; the last one is aborted."""
    producer = Producer({"bootstrap.servers": end.address, "transactional.id": producer_id})
    producer.init_transactions()
    for number, topics in enumerate(transactions, 1):
        producer.begin_transaction()
        for topic in topics:
            producer.produce(topic, b"x", partition=0)
        producer.flush()  # otherwise what is aborted may not be sent
        if number < len(transactions):
            producer.commit_transaction()
        else:
            producer.abort_transaction()


def test_topics_that_transactions_couple_are_named_by_plan_rehearse_and_cutover(
    pair: TwoClusters, unique: Callable[[str], str], tmp_path: Path
) -> None:
    names = ("orders", "clicks", "alone", "outbox", "payments", "others")
    orders, clicks, alone, outbox, payments, others = topics = [unique(one) for one in names]
    shop, single, other = (unique(one) for one in ("shop", "single", "other"))
    for topic in topics:
        pair.source.create(topic)
    _write(pair.source, shop, (orders, clicks), (clicks, outbox), (orders, payments))
    _write(pair.source, single, (alone,), (alone,))
    _write(pair.source, other, (others,), (others,))
    file, flow = tmp_path / "mirror.toml", unique("f")
    identity = 'naming = "identity"'
    lines = [
        f'[clusters.a]\n"bootstrap.servers" = "{pair.source.address}"',
        f'[clusters.b]\n"bootstrap.servers" = "{pair.target.address}"',
        f'[flows.{flow}]\nsource = "a"\ntarget = "b"\ntopics = {json.dumps([orders, clicks, alone])}\n{identity}',
        f'[flows.{flow}-2]\nsource = "a"\ntarget = "b"\ntopics = ["{payments}"]\n{identity}',
    ]
    file.write_text("\n".join(lines), encoding="utf-8")

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--config", str(file)])

    def named(command: str, key: str, *arguments: str) -> list[str]:
        """The lines of the first flow that name one of these topics."""
        found: list[dict[str, Any]] = json.loads(invoke(command, "--json", *arguments).stdout)["flows"]
        return [one for one in found[0][key] if one.startswith(LINE) and any(topic in one for topic in topics)]

    def line(topic: str, remedy: str) -> str:
        return f"{LINE}{shop} write to topic {topic} and to topics {clicks}, {orders}: {remedy}"

    nowhere = line(outbox, "no flow copies it to b")
    assert named("plan", "warnings", "--coupled", "1") == [nowhere]
    assert named("rehearse", "notes") == [nowhere]
    apart = line(payments, "it is another flow's: have both switch at once")
    assert named("rehearse", "notes", "--flow", flow) == [nowhere, apart]
    lines.append(f'[switches.{flow}-s]\nflows = ["{flow}"]\nfence = "hook"\nhook-fence = ["true"]')
    file.write_text("\n".join(lines), encoding="utf-8")
    apart = line(payments, f"switch {flow}-s moves {flow} without it; add the flow that copies it, or waive the topic")
    assert named("rehearse", "notes") == [nowhere, apart]
    refused = invoke("cutover", f"{flow}-s", "--dry-run")
    for topic in topics:
        said = line(topic, "have a flow of the switch copy it, or waive the topic") in refused.stderr
        assert said is (topic in {outbox, payments}), refused.output
    assert refused.exit_code == 3
