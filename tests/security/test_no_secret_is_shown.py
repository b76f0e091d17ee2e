"""A run with secrets of every kind, one of them wrong; then they are looked for in all that it said, did and left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from mirror.sandbox.cluster import Cluster
from tests.e2e.broker_side import Side
from tests.e2e.conftest import site
from tests.e2e.said import PROMETHEUS, Said
from tests.e2e.site import Site, flow
from tests.polling import eventually
from tests.security.conftest import CLIENT_ID, CLIENT_SECRET, PASSWORD, USER, Secured
from tests.security.marker import Search, Watch
from tests.security.tokens import Issuer

WRONG = "wr0ng-m4rker-of-a-password"
HEADER = "h34der-m4rker-of-a-flow"
OF_TELEMETRY = "t3lemetry-m4rker-of-a-key"
OF_ENDPOINT = "3ndpoint-m4rker-of-a-word"
TELEMETRY = {
    "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={OF_TELEMETRY}",
    "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://me:{OF_ENDPOINT}@127.0.0.1:1/?key={OF_TELEMETRY}",
}
OF_BACKEND = {"telemetry's key": OF_TELEMETRY, "telemetry's password": OF_ENDPOINT}
PART = PASSWORD[-8:]
"""ASCII, so that it is the same whether it is quoted or not."""
WITHIN_S = 120.0

FILES = {
    "clusters__scram__sasl_jaas_config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
    f'username="{USER}" password="{PASSWORD.replace(chr(34), chr(92) + chr(34))}";',
    "clusters__scram__ssl_key_password": PASSWORD,
    "clusters__tokens__sasl_oauthbearer_client_credentials_client_secret": CLIENT_SECRET,
    "clusters__wrong__sasl_password": WRONG,
    "flows__by_password__headers": json.dumps({"key": HEADER}),
}


__all__ = ["site"]
pytestmark = [pytest.mark.brokers, pytest.mark.spark]


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every token that is issued."""
    issued, issue = list[str](), Issuer.token

    def kept(issuer: Issuer, *arguments: object, **named: object) -> str:
        issued.append(issue(issuer, *arguments, **named))  # type: ignore[arg-type]
        return issued[-1]

    monkeypatch.setattr(Issuer, "token", kept)
    return issued


@pytest.fixture
def topic(secured: Secured, unique: Callable[[str], str]) -> str:
    """With three records, at the source."""
    name = unique("marked")
    source = Side(secured.cluster.bootstrap_servers)
    source.create(name)
    source.fill(name, [b"1", b"2", b"3"])
    return name


def _configure(site: Site, secured: Secured, target: Cluster, topic: str) -> Path:
    """Three ways to authenticate, the last of them with a wrong password; the folder of secrets."""
    scram = secured.options(
        "SASLTLS", sasl_mechanism="SCRAM-SHA-512", ssl_keystore_location=str(secured.locked_client.path)
    )
    by_token = secured.options("SASLTLS") | secured.credentials("OAUTHBEARER")
    del by_token["sasl.oauthbearer.client.credentials.client.secret"]
    assert by_token["sasl.oauthbearer.client.credentials.client.id"] == CLIENT_ID
    wrong = secured.options("SASLTLS", sasl_mechanism="PLAIN", sasl_username=USER)
    address = str(scram["bootstrap.servers"])
    site.write(
        {"scram": address, "tokens": address, "wrong": address, "b": target.bootstrap_servers},
        {
            "by-password": flow("scram", "b", [topic]),
            "by-token": flow("tokens", "b", [topic]),
            "refused": flow("wrong", "b", [topic]),
        },
        scram=scram,
        tokens=by_token,
        wrong=wrong,
    )
    folder = site.folder / "secrets"
    folder.mkdir()
    for name, secret in FILES.items():
        (folder / name).write_text(secret, encoding="utf-8")
    return folder


def _secrets(tokens: list[str]) -> dict[str, str]:
    """By name, all that must not be shown anywhere; a process's own environment may have telemetry's key, too."""
    assert tokens
    issued = {f"token {number}": token.rpartition(".")[2] for number, token in enumerate(tokens)}
    return {
        "password": PASSWORD,
        "its end": PART,
        "client secret": CLIENT_SECRET,
        "wrong password": WRONG,
        "header": HEADER,
        **issued,
    }


def test_no_secret_is_shown(
    secured: Secured, target_cluster: Cluster, site: Site, topic: str, tokens: list[str]
) -> None:
    folder = _configure(site, secured, target_cluster, topic)
    events = site.folder / "events"
    events.mkdir()
    log_events = f"-Dspark.eventLog.enabled=true -Dspark.eventLog.compress=false -Dspark.eventLog.dir={events.as_uri()}"
    environ = {
        "SPARK_SUBMIT_OPTS": f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {log_events}",
        "MIRROR_LOG_FORMAT": "json",
        **TELEMETRY,
        # Into files instead, which are searched as well; the stream below exports.
        "OTEL_TRACES_EXPORTER": "none",
        "OTEL_METRICS_EXPORTER": "none",
    }
    by_file = ["--secrets-dir", str(folder)]
    with Watch(site) as watch:
        run = site.run(*by_file, "--json", "--debug", environ=environ)
        asked = {
            name: site.launch([*site.command(name.split()[0]), *by_file, *name.split()[1:]])
            for name in ("plan", "plan --json", "status", "status --json --flow by-token")
        }
        said = {"run": run, **{name: site.finish(child) for name, child in asked.items()}}

    assert (site.report / "summary.json").exists(), run.err
    outcomes = {name: each["outcome"] for name, each in site.flows().items()}
    assert run.status == 1, run.err
    assert outcomes == {"by-password": "complete", "by-token": "complete", "refused": "failed"}, run.err
    assert "PLAIN authentication of user 'mirror' failed" in run.err
    assert topic in said["plan --json"].out, said["plan --json"].err
    assert topic in said["status --json --flow by-token"].out

    secrets = _secrets(tokens)
    search = Search({**secrets, **OF_BACKEND})
    there = search.found_in_files(folder, [])[0]
    assert {each.rpartition(" in ")[2] for each in there} == set(FILES), "what is there is found"
    found, files = search.found_in_files(site.folder, [folder])
    for name, each in said.items():
        found += search.found(f"{name}: stdout", each.out.encode()) + search.found(f"{name}: stderr", each.err.encode())
    for (pid, _), (line, environment) in watch.seen.items():
        found += search.found(f"command line of {pid}: {line[:60]!r}", line)
        found += Search(secrets).found(f"environment of {pid}: {line[:60]!r}", environment)
    assert found == []

    # All of it was there to be searched.
    names = {path.name for path in files}
    assert {"summary.json", "report.html", "spark.log", "traces.jsonl", "metrics.jsonl"} <= names
    assert any(name.endswith(".jsonl.gz") for name in names)
    logged = b"".join(path.read_bytes() for path in files if path.is_relative_to(events))
    assert b"SparkListenerEnvironmentUpdate" in logged
    assert b"mirror by-password: scram to b" in logged, "the job, with its description"
    lines = [line for line, _ in watch.seen.values()]
    assert [any(program in line for line in lines) for program in (b"java", b"pyspark", b"mirror.cli")] == [True] * 3


# The suite has the batch run above, which prints the same lines and leaves more files.
@pytest.mark.cluster
def test_a_stream_shows_no_secret_in_plain_lines_and_to_who_scrapes_it(
    secured: Secured, target_cluster: Cluster, site: Site, topic: str, tokens: list[str]
) -> None:
    folder = _configure(site, secured, target_cluster, topic)
    environ = {
        "OTEL_METRICS_EXPORTER": "prometheus",
        "OTEL_EXPORTER_PROMETHEUS_HOST": "127.0.0.1",
        "OTEL_EXPORTER_PROMETHEUS_PORT": "0",
        "OTEL_METRIC_EXPORT_INTERVAL": "1000",
        **TELEMETRY,
    }
    scraped = ""
    with Watch(site) as watch:
        child = site.start(
            "--secrets-dir", str(folder), "--debug", "--master", "local[4]", command="stream", environ=environ
        )
        said = Said(child)
        address = said.find(PROMETHEUS)

        def copied() -> bool:
            nonlocal scraped
            assert child.poll() is None, said.all()
            with contextlib.suppress(URLError), urlopen(f"http://{address}/metrics", timeout=30) as answer:
                scraped = answer.read().decode()
            return all(f'flow="{name}"' in scraped for name in ("by-password", "by-token")) and topic in scraped

        eventually(copied, within_s=WITHIN_S, what="measurements of both flows", every_s=0.5)
        child.send_signal(signal.SIGTERM)
        child.wait(WITHIN_S)
    site.await_end()

    search = Search({**_secrets(tokens), **OF_BACKEND})
    found, files = search.found_in_files(site.folder, [folder])
    found += search.found("what is scraped", scraped.encode()) + search.found("stderr", said.all().encode())
    for (pid, _), (line, _) in watch.seen.items():
        found += search.found(f"command line of {pid}: {line[:60]!r}", line)
    assert found == []
    assert "PLAIN authentication of user 'mirror' failed" in said.all()
    assert "spark.log" in {path.name for path in files}
