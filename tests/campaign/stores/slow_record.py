"""The walk of one slow record in a real Zipkin: from its producer over the copy to its consumer, in one trace.

    python -m tests.campaign.stores.slow_record [--folder DIR] [--wait]

A stream copies; the target's broker stands still while an order is produced. Chromium takes a picture of the page of
the order's trace into DIR; ``--wait`` leaves Zipkin running until Enter. The exit status is 1 if Zipkin lacks a part of
the walk, or if the time was not where the order has waited.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from rich.console import Console

from mirror.sandbox.cluster import Cluster
from tests.campaign.stores.campaign import picture
from tests.campaign.stores.zipkin import Zipkin, zipkin
from tests.e2e.broker_side import WITHIN_S, Side
from tests.e2e.site import Site, flow
from tests.polling import eventually
from tests.telemetry import receiver
from tests.telemetry.receiver import ReceivedSpan

TOPIC: Final = "orders"
FLOW: Final = "paris-berlin"
SLOW_MS: Final = 1_000
STANDS_STILL_S: Final = 2.5
_BROKER: Final = 1
_CONSOLE: Final = Console(width=160, highlight=False, markup=False, soft_wrap=True)


def walk(folder: Path, source: Side, target: Cluster, store: Zipkin) -> list[ReceivedSpan]:
    """Have an order produced, copied late and consumed; put its trace into ``store``, and return the trace's spans."""
    site, berlin = Site(folder), Side(target.bootstrap_servers)
    source.create(TOPIC)
    site.write({"paris": source.address, "berlin": berlin.address}, {FLOW: flow("paris", "berlin", [TOPIC])})
    with (
        receiver.http() as (address, taken),
        _service("shop", address) as shop,
        _service("billing", address) as billing,
    ):
        environ = {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{address}/v1/traces",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "MIRROR_TRACE_SLOW_MS": str(SLOW_MS),
        }
        stream = site.start(command="stream", environ=environ)
        try:
            source.fill(TOPIC, [b"the first order"], first_ms=round(time.time() * 1000))
            # Then nothing is in flight. What the copy awaits of the target could keep it from fetching the next order.
            eventually(lambda: berlin.progress(FLOW, f"paris.{TOPIC}") == 1, within_s=200, what="the first commit")
            target.pause(_BROKER)
            trace = _order(shop, source)
            time.sleep(STANDS_STILL_S)
            target.resume(_BROKER)
            _bill(billing, berlin)
            eventually(lambda: taken.named("mirror.record.append"), within_s=60, what="the way of the order")
            stream.send_signal(signal.SIGTERM)
            assert site.finish(stream).status == 0
        finally:
            site.kill()
        found = [span for span in taken.spans if span.trace == trace]
        store.take(found)
    return found


def wrong(spans: Sequence[ReceivedSpan], store: Zipkin) -> list[str]:
    """Return what is not as it should be in the walk that :func:`walk` has returned, and in ``store``."""
    parents = {
        f"send {TOPIC}": "",
        "mirror.record": f"send {TOPIC}",
        **{f"mirror.record.{part}": "mirror.record" for part in ("fetch", "hold", "append")},
        f"process paris.{TOPIC}": f"send {TOPIC}",  # the record's header is the producer's
    }
    names = {"": "", **{span.id: span.name for span in spans}}
    found = {span.name: names.get(span.parent) for span in spans}
    if found != parents or len(spans) != len(parents):
        return [f"the spans and their parents are {found}"]
    append = next(span for span in spans if span.name == "mirror.record.append")
    if append.ended_ms - append.began_ms < SLOW_MS:
        return [
            f"the target stood still for {STANDS_STILL_S} s, and the append took {append.ended_ms - append.began_ms} ms"
        ]
    stored = set[str]()

    def is_stored() -> bool:
        stored.update(span["name"] for trace in store.traces(f"mirror.topic={TOPIC}") for span in trace)
        return stored >= parents.keys()

    with contextlib.suppress(AssertionError):
        eventually(is_stored, within_s=10, what="the trace")  # Spans are indexed with a delay.
    return [] if stored == parents.keys() else [f"Zipkin found {sorted(stored)}"]


@contextlib.contextmanager
def _service(name: str, address: str) -> Iterator[Tracer]:
    """A service that exports its spans, as one of a user does."""
    provider = TracerProvider(resource=Resource({"service.name": name}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{address}/v1/traces")))
    try:
        yield provider.get_tracer(name)
    finally:
        provider.shutdown()


def _order(shop: Tracer, source: Side) -> str:
    """Produce an order that carries its trace, and return that."""
    with shop.start_as_current_span(f"send {TOPIC}", kind=SpanKind.PRODUCER) as span:
        headers = dict[str, str]()
        TraceContextTextMapPropagator().inject(headers)
        producer = source.producer(linger_ms=0, enable_idempotence=False)  # which would wait for a producer id first
        producer.produce(TOPIC, b"an order", headers=list(headers.items()))
        assert producer.flush(WITHIN_S) == 0
        return f"{span.get_span_context().trace_id:032x}"


def _bill(billing: Tracer, target: Side) -> None:
    """Read the order from the target, as a consumer that continues its trace does."""
    options = {"bootstrap.servers": target.address, "group.id": "billing", "isolation.level": "read_committed"}
    consumer = Consumer(options)
    try:
        consumer.assign([TopicPartition(f"paris.{TOPIC}", 0, 0)])
        pairs: Any = None
        while not pairs:  # the first order has no trace
            message = consumer.poll(WITHIN_S)
            assert message is not None
            assert message.error() is None, message.error()
            pairs = message.headers()
        headers = {name: value.decode() for name, value in pairs}
        context = TraceContextTextMapPropagator().extract(headers)
        with billing.start_as_current_span(f"process paris.{TOPIC}", context, kind=SpanKind.CONSUMER):
            pass
    finally:
        consumer.close()


def main(argv: Sequence[str]) -> int:
    """Show it, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("build/stores"), help="where the picture goes")
    parser.add_argument("--wait", action="store_true", help="leave Zipkin running until Enter")
    arguments = parser.parse_args(argv)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="mirror-stores-")))
        source = running.enter_context(Cluster())
        target = running.enter_context(Cluster())
        store = running.enter_context(zipkin(folder))
        spans = walk(folder, Side(source.bootstrap_servers), target, store)
        for span in sorted(spans, key=lambda one: one.began_ms):
            took_ms = span.ended_ms - span.began_ms
            _CONSOLE.print(f"{span.resource['service.name']:20} {span.name:22} {span.began_ms} {took_ms:6} ms")
        page = store.trace_page(spans[0].trace)
        picture(page, arguments.folder / "slow-record.png")
        found = wrong(spans, store)
        for line in found:
            _CONSOLE.print(f"WRONG: {line}")
        if arguments.wait:
            input(f"{page}, until Enter: ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
