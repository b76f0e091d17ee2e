"""Shows a sick partition in real stores: traces in Zipkin, metrics in Prometheus.

    python tests/campaign/stores/campaign.py [--folder DIR] [--wait]

All is copied; then a scheduled run meets a target partition without a leader, and a stream goes on with it, until the
broker is back. Then the searches that config/dashboards/README.md and the dashboards name are run, and their results
are compared with what was exported. Chromium takes screenshots of both stores' pages into DIR; ``--wait`` leaves both
running for inspection, until Enter. The exit status is 1 if a search does not find what it should.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from mirror.sandbox.cluster import Cluster
from mirror.sandbox.ports import free_ports
from tests.campaign.stores.zipkin import Zipkin, zipkin
from tests.e2e.broker_side import Side
from tests.e2e.feed import Feed
from tests.e2e.prometheus import Prometheus, prometheus
from tests.e2e.sick import PARTITIONS, SICK, SickFlow
from tests.e2e.site import Site, flow
from tests.polling import eventually
from tests.telemetry import receiver
from tests.telemetry.dashboards import RULES
from tests.telemetry.receiver import ReceivedTelemetry

TOPIC: Final = "orders"
FLOW: Final = "paris-berlin"
SHORT: Final = f"""period-ms = 12000
refresh-ms = 1000
[flows.{FLOW}.producer]
"delivery.timeout.ms" = 5000
"request.timeout.ms" = 2000
"linger.ms" = 0"""
SICK_EPOCHS: Final = 6
"""So many the partition does not get through, before its broker is back: longer than it takes to be called stuck."""
WITHIN_S: Final = 300.0
_SIZE: Final = "1600,1400"
_PAGE_WITHIN_S: Final = 60
_LOADS_MS: Final = 20_000
_CONSOLE: Final = Console(width=160, highlight=False, markup=False, soft_wrap=True)
_ITS: Final = f"mirror.topic={TOPIC} and mirror.partition={SICK}"


def main(argv: Sequence[str]) -> int:
    """Run the campaign and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("build/stores"), help="where the pictures go")
    parser.add_argument("--wait", action="store_true", help="leave the stores running until Enter")
    arguments = parser.parse_args(argv)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="mirror-stores-")))
        source = running.enter_context(Cluster())
        target = running.enter_context(Cluster(2))
        backend, taken = running.enter_context(receiver.http())
        store = running.enter_context(zipkin(folder))
        site = Site(folder)
        running.callback(site.kill)
        (port,) = free_ports(1)
        measured = running.enter_context(prometheus(folder, [f"127.0.0.1:{port}"], RULES))
        sick = SickFlow(Side(source.bootstrap_servers), TOPIC, target, f"paris.{TOPIC}", name=FLOW)
        _copy(site, sick, backend, port, lambda: _prometheus_pages(measured, arguments.folder))
        store.take(taken.spans)
        wrong = list(_searches(store, taken))
        _zipkin_pages(store, taken, arguments.folder)
        for line in wrong:
            _CONSOLE.print(f"WRONG: {line}")
        _CONSOLE.print(f"pictures are in {arguments.folder}")
        if arguments.wait:
            input(f"{store.url} and http://127.0.0.1:{measured.port}/graph, until Enter: ")
    return 1 if wrong else 0


# ------------------------------------------------------------------------------------------------- what there is to see


def _copy(site: Site, sick: SickFlow, backend: str, port: int, look: Callable[[], None]) -> None:
    """Execute a run and a stream; call ``look`` when the partition has been sick for longest."""
    sick.fill(2_000)
    site.write({"paris": sick.source.address, "berlin": sick.address}, {FLOW: flow("paris", "berlin", [TOPIC], SHORT)})
    environ = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{backend}/v1/traces"}
    assert site.run(environ=environ).status == 0
    sick.fill(1_000)
    sick.harm()
    run = site.run(environ=environ)
    _CONSOLE.print(run.out, run.err)
    assert run.status == 3, "some partitions did not complete"
    environ |= {"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_EXPORTER_PROMETHEUS_PORT": str(port)}
    environ |= {"OTEL_EXPORTER_PROMETHEUS_HOST": "127.0.0.1", "OTEL_METRIC_EXPORT_INTERVAL": "2000"}
    stream = site.start(command="stream", environ=environ)
    with Feed(sick.source, TOPIC, PARTITIONS, 200):
        _await_epochs(site, stream, SICK_EPOCHS)
        look()
        sick.heal()
        there = sick.source.end(TOPIC, SICK)
        # The target's log has markers of transactions, too.
        eventually(lambda: sick.copied(SICK) >= there, within_s=WITHIN_S, what="the sick partition's catch-up")
        _await_epochs(site, stream, SICK_EPOCHS + 2)
    stream.send_signal(signal.SIGTERM)
    ended = site.finish(stream)
    _CONSOLE.print(ended.out, ended.err)
    assert ended.status == 0


def _await_epochs(site: Site, stream: subprocess.Popen[str], count: int) -> None:
    def done() -> bool:
        assert stream.poll() is None, stream.communicate()
        return len(list(site.report.glob(f"ledger/{FLOW}/*/results-*.jsonl.gz"))) >= count + 2  # the runs'

    eventually(done, within_s=WITHIN_S, what=f"{count} epochs")


# ------------------------------------------------------------------------------------------------------------- searches


def _searches(store: Zipkin, taken: ReceivedTelemetry) -> Iterator[str]:
    """Make the searches of config/dashboards/README.md, and yield those that find nothing."""
    partitions = [span for span in taken.named("mirror.partition") if span.attributes["mirror.partition"] == SICK]
    outages = {str(span.attributes.get("mirror.sick.trace", "")) for span in partitions} - {""}
    _CONSOLE.print(
        f"{len(taken.spans)} spans, {len({span.trace for span in taken.spans})} traces; outages: {sorted(outages)}"
    )
    for outage in outages:
        wanted = {span.trace for span in partitions if span.attributes.get("mirror.sick.trace") == outage}
        yield from _search(store, f"mirror.sick.trace={outage}", wanted)
    yield from _search(store, _ITS, {span.trace for span in partitions})
    expired = {span.trace for span in taken.named("mirror.partition") if span.attributes["mirror.expiries"]}
    assert expired
    yield from _search(store, "mirror.expired=true", expired)
    yield from _search(store, "error", {span.trace for span in taken.spans if span.error})
    for trace in expired:
        spans = [span for span in taken.spans if span.trace == trace]
        ids = {span.id for span in spans}
        if lost := [span.name for span in spans if span.parent and span.parent not in ids]:
            yield f"trace {trace}: no parent of {lost}"


def _search(store: Zipkin, query: str, wanted: set[str]) -> Iterator[str]:
    found: set[str] = set()

    def there() -> bool:
        found.update(trace[0]["traceId"] for trace in store.traces(query))
        return found >= wanted

    with contextlib.suppress(AssertionError):
        eventually(there, within_s=10, what=query)  # Spans are indexed with a delay.
    _CONSOLE.print(f"{query}: {len(found)} traces")
    if found != wanted:
        yield f"{query}: found {sorted(found)}, and not {sorted(wanted)}"


# ------------------------------------------------------------------------------------------------------------- pictures


def _prometheus_pages(measured: Prometheus, folder: Path) -> None:
    for name, expr in (
        ("lag", "sum by (topic) (mirror_lag_records)"),
        ("lag-of-partitions", "mirror_partition_lag_records"),
        ("states", "mirror_partitions"),
    ):
        asked = urllib.parse.urlencode({"g0.expr": expr, "g0.tab": "0", "g0.range_input": "3m"})
        picture(f"http://127.0.0.1:{measured.port}/graph?{asked}", folder / f"prometheus-{name}.png")
    picture(f"http://127.0.0.1:{measured.port}/classic/alerts", folder / "prometheus-alerts.png")
    for name, rule in measured.rules().items():
        _CONSOLE.print(name, rule["state"], [each["annotations"]["summary"] for each in rule["alerts"]])


def _zipkin_pages(store: Zipkin, taken: ReceivedTelemetry, folder: Path) -> None:
    outages = [span for span in taken.named("mirror.partition") if "mirror.sick.trace" in span.attributes]
    last = max(outages, key=lambda span: span.ended_ms)
    outage = last.attributes["mirror.sick.trace"]
    picture(store.search_page(f"mirror.sick.trace={outage}"), folder / "zipkin-outage.png")
    picture(store.search_page(_ITS), folder / "zipkin-partition.png")
    for name, trace in (("first", outage), ("last", last.trace)):
        picture(store.trace_page(trace), folder / f"zipkin-trace-{name}.png")


def picture(url: str, file: Path) -> None:
    """Return the picture of ``url`` that a browser shows."""
    program = shutil.which("chromium")
    assert program is not None, "there is no chromium on the PATH: apt-get install chromium"
    with tempfile.TemporaryDirectory(prefix="mirror-browser-", ignore_cleanup_errors=True) as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        shot = [f"--window-size={_SIZE}", f"--virtual-time-budget={_LOADS_MS}", f"--screenshot={file.absolute()}"]
        subprocess.run([program, *options, *shot, url], capture_output=True, check=True, timeout=_PAGE_WITHIN_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
