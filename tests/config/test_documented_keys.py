"""The READMEs list every key of flows and clusters with its default, and their examples are configurations."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from mirror.config.effective import effective_config
from mirror.config.load import load
from mirror.config.schema import CLIENT_KEYS
from mirror.consumer.settings import ConsumerSettings
from mirror.producer.settings import ProducerSettings
from mirror.sandbox.fetch import class_path, fetch
from mirror.sandbox.java import find_java
from tests import jvm
from tests.config.conftest import CLUSTERS, FLOW, Load
from tests.config.key_tables import DOCUMENT, with_tables

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "mirror" / "README.md"


def table(heading: str, document: Path = DOCUMENT) -> dict[str, str]:
    """The defaults by key, as the table of ``document`` with this first column has them."""
    _, found, rest = document.read_text(encoding="utf-8").partition(f"| {heading} | default | meaning |\n")
    assert found, f"{document} has no table for {heading}"
    rows = re.findall(r"^\| `(.+?)` \| ?(.*?) ?\| .+ \|$", rest.partition("\n\n")[0], re.MULTILINE)
    return {key.strip('"'): default.strip("`").replace("\\|", "|") for key, default in rows}


def test_key_tables_are_those_of_the_models() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert with_tables(text) == text, "run python -m tests.config.key_tables"


@pytest.mark.parametrize("client", ["consumer", "producer"])
def test_keys_of_a_flow_s_clients_are_listed_with_their_values_in_force(client: str, read: Load) -> None:
    config = read(CLUSTERS + FLOW)
    defaults = effective_config(config)["flows"]["paris-berlin"][client]
    listed = table(f"`[flows.NAME.{client}]`")
    assert listed.keys() <= CLIENT_KEYS[client].keys()
    assert listed == {key: json.dumps(defaults[key]) for key in listed}


def client_table(column: int) -> dict[str, str]:
    """The defaults by key in the table of the client's settings: ours (1) or Kafka's (2)."""
    rows = re.findall(r"^\| (`.+?`) \| ?(.*?) ?\| ?(.*?) ?\| .+ \|$", CLIENT.read_text(encoding="utf-8"), re.MULTILINE)
    names = [(re.findall("`(.+?)`", row[0]), row[column].removesuffix(", or more")) for row in rows]
    lists = [(keys, text.split(", ") if len(keys) > 1 else [text]) for keys, text in names]
    return {key: default for keys, defaults in lists for key, default in zip(keys, defaults, strict=True)}


def written(default: object) -> str:
    """A default as that table has it, and Java prints it."""
    return str(default).lower() if isinstance(default, bool) else str(default)


def test_client_settings_are_listed_with_their_defaults() -> None:
    keys = {**ProducerSettings.keys(), **ConsumerSettings.keys()}
    listed = client_table(1)
    assert listed.keys() > {"linger.ms", "isolation.level", "acks"}
    assert listed == {name: written(keys[name].default) for name in listed}


@pytest.mark.brokers
def test_every_default_that_differs_from_java_s_is_listed(tmp_path: Path) -> None:
    """By Kafka's own classes. Neither have names, nor security, which is of other kinds here, defaults to compare."""
    source = Path(__file__).parent / "java" / "ClientDefaults.java"
    jars = class_path(fetch())
    options = *jvm.PLAIN, "-cp", f"{jvm.compiled(source, tmp_path, jars)}:{jars}", source.stem
    lines = subprocess.run([find_java().path, *options], check=True, capture_output=True, text=True).stdout.splitlines()
    java = {(client, key): default for client, key, default in (line.split("\t") for line in lines)}
    all_keys = {**ProducerSettings.keys(), **ConsumerSettings.keys()}
    names = {"bootstrap.servers", "group.id", "transactional.id"}
    compared = {key for key in all_keys if key not in names and not key.startswith(("ssl.", "sasl."))}
    listed = client_table(2)
    for key in sorted(compared):
        theirs = [default for (_, name), default in java.items() if name == key]
        if set(theirs) != {written(all_keys[key].default)}:
            assert key in listed, f"{key}: {theirs} in Java"
    assert listed.pop("connections.max.idle.ms") == "540000, `Admin`: 300000"
    assert java["admin", "connections.max.idle.ms"] == "300000"
    expected = {key: {default for (_, name), default in java.items() if name == key} or {""} for key in listed}
    assert {key: {default.replace("empty", "")} for key, default in listed.items()} == expected


@pytest.mark.parametrize("document", ["README.md", "config/README.md"])
def test_examples_are_configurations(document: str, tmp_path: Path) -> None:
    whole, *parts = re.findall(r"```toml\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path / "mirror.toml"
    file.write_text(whole, encoding="utf-8")
    assert load(file, environ={}).flows["paris-berlin"].topics == ("orders", "clicks-.*")
    secret = {"MIRROR_FLOWS__PARIS_BERLIN__TEST_COPY__SECRET": "a secret of a test"}
    for part in parts:
        text = part if "topics" in part else FLOW + part.partition("\n")[2]
        file.write_text(CLUSTERS + text, encoding="utf-8")
        assert load(file, environ=secret if "test-copy" in text else {}).flows
