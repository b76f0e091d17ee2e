"""The READMEs list every key of flows and clusters with its default, and their examples are configurations."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mirror.config.effective import effective_config
from mirror.config.load import load
from mirror.config.models import FLOW_NAME, FlowConfig
from mirror.config.schema import CLIENT_KEYS, CLUSTER_KEYS
from mirror.producer.settings import ProducerSettings
from tests.config.conftest import CLUSTERS, FLOW, Load

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "config" / "README.md"
FAMILIES = {"ssl.*", "sasl.*"}


def table(heading: str, document: Path = DOCUMENT) -> dict[str, str]:
    """The defaults by key, as the table of ``document`` with this first column has them."""
    _, found, rest = document.read_text(encoding="utf-8").partition(f"| {heading} | default | meaning |\n")
    assert found, f"{document} has no table for {heading}"
    rows = re.findall(r"^\| `(.+?)` \| ?(.*?) ?\| .+ \|$", rest.partition("\n\n")[0], re.MULTILINE)
    return {key.strip('"'): default.strip("`").replace("\\|", "|") for key, default in rows}


def test_every_key_of_a_flow_is_listed_with_its_default() -> None:
    expected = {}
    for field in FlowConfig.model_fields.values():
        if field.validation_alias == FLOW_NAME or field.alias in FlowConfig.sections():
            continue
        default = field.get_default(call_default_factory=True)
        expected[field.alias] = "required" if field.is_required() else json.dumps(default)
    expected |= dict.fromkeys([*CLIENT_KEYS, *FlowConfig.sections()], "")
    assert table("`[flows.NAME]`") == expected


@pytest.mark.parametrize("section", FlowConfig.sections())
def test_every_key_of_a_section_is_listed_with_its_default(section: str) -> None:
    fields = FlowConfig.sections()[section].model_fields.values()
    expected = {field.alias: json.dumps(field.get_default(call_default_factory=True)) for field in fields}
    assert table(f"`[flows.NAME.{section}]`") == expected


def test_every_key_of_a_cluster_is_listed_with_its_default() -> None:
    expected = {key.name: json.dumps(key.default) for key in CLUSTER_KEYS.values()}
    expected = {name: default for name, default in expected.items() if not name.startswith(("ssl.", "sasl."))}
    assert table("`[clusters.NAME]`") == {**expected, "bootstrap.servers": "required"} | dict.fromkeys(FAMILIES, "")


@pytest.mark.parametrize("client", ["consumer", "producer"])
def test_keys_of_a_flow_s_clients_are_listed_with_their_values_in_force(client: str, read: Load) -> None:
    config = read(CLUSTERS + FLOW)
    defaults = effective_config(config)["flows"]["paris-berlin"][client]
    listed = table(f"`[flows.NAME.{client}]`")
    assert listed.keys() <= CLIENT_KEYS[client].keys()
    assert listed == {key: json.dumps(defaults[key]) for key in listed}


def test_producer_settings_are_listed_with_their_defaults() -> None:
    listed = table("key", ROOT / "mirror" / "README.md")
    rows = [(keys.split("`, `"), defaults.removesuffix(", or more").split(", ")) for keys, defaults in listed.items()]
    defaults = {key: default for names, values in rows for key, default in zip(names, values, strict=True)}
    keys = ProducerSettings.keys()
    assert defaults == {name: str(keys[name].default).replace("True", "true") for name in defaults}


@pytest.mark.parametrize("document", ["README.md", "config/README.md"])
def test_examples_are_configurations(document: str, tmp_path: Path) -> None:
    whole, *parts = re.findall(r"```toml\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path / "mirror.toml"
    file.write_text(whole, encoding="utf-8")
    assert load(file, environ={}).flows["paris-berlin"].topics == ("orders", "clicks-.*")
    for part in parts:
        text = part if "topics" in part else FLOW + part.partition("\n")[2]
        file.write_text(CLUSTERS + text, encoding="utf-8")
        assert load(file, environ={}).flows
