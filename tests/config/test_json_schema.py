"""The JSON Schema that editors use accepts what the program accepts, and finds what is misspelt."""

from __future__ import annotations

import datetime as dt
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import fastjsonschema
import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.cli.commands.demo import DEMO_CONFIG
from mirror.config.effective import UNSETTABLE
from mirror.config.json_schema import json_schema
from mirror.config.schema import overridable

from .conftest import CLUSTERS, FLOW

CONFIG: Final = Path(__file__).parents[2] / "config"
FILE: Final = CONFIG / "mirror.schema.json"
EXAMPLES: Final = [*sorted(CONFIG.glob("*.toml")), DEMO_CONFIG]

_SCHEMA: Final = json_schema()
_check: Final = fastjsonschema.compile(_SCHEMA)


def _read(text: str) -> Any:
    """A file as an editor's checker has it: JSON has no times, so that they are texts."""
    return json.loads(json.dumps(tomllib.loads(text), default=dt.datetime.isoformat))


def test_the_file_is_what_the_command_prints() -> None:
    result = CliRunner().invoke(app, ["config-schema"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert FILE.read_text("utf-8") == result.stdout, "run mirror config-schema > config/mirror.schema.json"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_names_its_schema_and_has_nothing_wrong(example: Path) -> None:
    text = example.read_text("utf-8")
    named = re.fullmatch("#:schema (.+)", text.splitlines()[0])
    assert named
    assert (example.parent / named[1]).resolve() == FILE
    _check(_read(text))


def test_examples_of_the_documents_have_nothing_wrong() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (CONFIG / "README.md").read_text("utf-8"), re.DOTALL)
    assert len(blocks) > 3
    for block in blocks:
        _check(_read(block))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('namig = "prefix"', "must not contain {'namig'}"),
        ('naming = "prefixed"', "must be one of ['prefix', 'identity']"),
        ("commit-interval-ms = 19", "must be bigger than or equal to 20"),
        ('commit_interval_ms = "20"', "must not contain {'commit_interval_ms'}"),
        ("topics-exclude = []\nstart-over = 1", "must be boolean"),
        ("groups.include = 'x'", "must be array"),
        ("groups.synch = true", "must not contain {'synch'}"),
        ('producer."delivery.timeout" = 1', "must not contain {'delivery.timeout'}"),
        ('producer."transactional.id" = "x"', "must not contain {'transactional.id'}"),
        ('producer."sasl.password" = "x"', "must not contain {'sasl.password'}"),
        ("from = true", "cannot be validated by any definition"),
        ("headers.via = 1", "must be string"),
        ("[clusters.oslo]\nbootstrap.servers = 'x'", "must not contain {'bootstrap'}"),
        ("[clusters.oslo]\n'security.protocol' = 'TLS'", "must be one of"),
        ("[cluster.oslo]", "must not contain {'cluster'}"),
    ],
)
def test_what_is_wrong_is_found(line: str, message: str) -> None:
    with pytest.raises(fastjsonschema.JsonSchemaValueException, match=re.escape(message)):
        _check(_read(f"{CLUSTERS}{FLOW}{line}\n"))


@pytest.mark.parametrize(
    "line",
    [
        "from = 2026-01-31T00:00:00Z\nuntil = 5",
        "start = 2026-01-31T00:00:00Z",
        "configs-overrides = { 'retention.ms' = 1000, 'cleanup.policy' = 'compact', 'preallocate' = true }",
        "headers = { via = 'paris' }",
        "groups = {}",
        "[clusters.oslo]\n'bootstrap.servers' = ['oslo-1:9092', 'oslo-2:9092']",
        "[clusters.oslo]",  # the environment has its keys
    ],
)
def test_what_is_right_passes(line: str) -> None:
    _check(_read(f"{CLUSTERS}{FLOW}{line}\n"))


def test_each_key_that_a_file_may_have_is_described_and_its_default_is_valid() -> None:
    paths = [path for path in overridable(_read(CLUSTERS + FLOW)) if path[-1] not in UNSETTABLE]
    assert len(paths) > 150
    defaults: dict[str, Any] = {}
    for path in paths:
        found = _at(path)
        assert found["description"], path
        if "default" in found:
            table = defaults
            for part in path[:-1]:
                table = table.setdefault(part, {})
            table[path[-1]] = found["default"]
    assert defaults["flows"]["paris-berlin"]["groups"]["interval-ms"] == 10_000
    _check(defaults)


def _at(path: tuple[str, ...]) -> dict[str, Any]:
    """The schema of the key at ``path``."""
    found = _SCHEMA
    for part in path:
        found = found["properties"][part] if "properties" in found else found["additionalProperties"]
    return found


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from [inner] if key == "description" and isinstance(inner, str) else _texts(inner)


def test_descriptions_have_no_links_which_an_editor_could_not_follow() -> None:
    assert [text for text in _texts(_SCHEMA) if "](" in text] == []
