"""Test copies: what the table of a flow may say, and where its secret is not shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.config.effective import configured_keys, effective_config

from .conftest import CLUSTERS, FLOW, Load, Problems

SECRET = "a secret that is never shown"
TABLE = "[flows.paris-berlin.test-copy]\n"
HASH = 'mask = { "value:$.password" = "hash" }\n'
VARIABLE = "MIRROR_FLOWS__PARIS_BERLIN__TEST_COPY__SECRET"


def test_a_flow_without_the_table_copies_all(read: Load) -> None:
    flow = read().flows["paris-berlin"]
    assert (flow.test_copy.is_on, flow.copy_policy().masking, flow.copy_policy().rewrites) == (False, None, False)


def test_the_copy_gets_what_the_table_says(read: Load) -> None:
    text = CLUSTERS + FLOW + TABLE + 'sample = "0.5%"\non-unmaskable = "skip"\n' + HASH
    flow = read(text, {VARIABLE: SECRET}).flows["paris-berlin"]
    policy = flow.copy_policy()
    assert policy.masking is not None
    assert (policy.rewrites, policy.masking.sample, policy.masking.masks) == (
        True,
        "0.5%",
        (("value:$.password", "hash"),),
    )
    assert (policy.masking.secret, policy.masking.leaves_out) == (SECRET.encode(), True)
    assert flow.test_copy.text() == "sample = 0.5%; value:$.password = hash"


@pytest.mark.parametrize("kind", ["file", "environment", "folder"])
def test_the_secret_is_shown_nowhere(kind: str, read: Load) -> None:
    text, environ, secrets = CLUSTERS + FLOW + TABLE + HASH, None, None
    if kind == "file":
        text += f'secret = "{SECRET}"\n'
    elif kind == "environment":
        environ = {VARIABLE: SECRET}
    else:
        secrets = {"flows__paris_berlin__test_copy__secret": f"{SECRET}\n"}
    config = read(text, environ, secrets)
    assert [path.name for path in config.secret_files] == {
        "file": ["mirror.toml"],
        "environment": [],
        "folder": ["flows__paris_berlin__test_copy__secret"],
    }[kind]
    shown = effective_config(config)
    assert shown["flows"]["paris-berlin"]["test-copy"] == {
        "sample": "100%",
        "mask": {"value:$.password": "hash"},
        "secret": "***",
        "on-unmaskable": "fail",
    }
    flow = config.flows["paris-berlin"]
    assert SECRET not in f"{config!r}{json.dumps(shown)}{flow.copy_policy()!r}{flow.test_copy.text()}"
    assert ("flows", "paris-berlin", "test-copy", "mask") in configured_keys(config)


def test_masks_may_come_from_the_environment(read: Load) -> None:
    environ = {"MIRROR_FLOWS__PARIS_BERLIN__TEST_COPY__MASK": '{"header:api-token": "drop"}'}
    assert read(CLUSTERS + FLOW, environ).flows["paris-berlin"].test_copy.mask == {"header:api-token": "drop"}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ('sample = "1"', 'test-copy.sample = "1": must be a percentage from "0.000001%" to "100%"'),
        ("sample = 1", 'test-copy.sample = 1: must be a percentage such as "1%"'),
        ('mask = { "value:$a" = "hash" }', '"value:$a" = "hash": a path is $, followed by .NAME'),
        ('mask = { "value" = "null" }', '"value" = "null": here a mask is "hash" or "constant:TEXT"'),
        ('mask = { "key" = 1 }', "test-copy.mask = 1: must be a table such as"),
        ('mask = { "key" = { x = "short" } }', "test-copy.mask = a table: must be a table such as"),
        (HASH, 'test-copy.secret = (not set): required with "hash": a text that only you have'),
        (f'{HASH}secret = "short"', "test-copy.secret = ***: must have at least 16 characters"),
        ('on-unmaskable = "drop"', 'must be "fail" or "skip"'),
        ('samples = "1%"', 'did you mean "sample"?'),
        ('sample = "1%"\n[flows.paris-berlin.mirrormaker]\nheartbeats = true', "must be false in a test copy"),
    ],
)
def test_what_is_wrong_is_one_line(lines: str, expected: str, problems: Problems) -> None:
    (line,) = problems(CLUSTERS + FLOW + TABLE + lines + "\n")
    assert expected in line
    assert '"short"' not in line


def test_the_bytes_of_a_damaged_batch_do_not_leave_a_test_copy(problems: Problems) -> None:
    aside = 'aside = "x"\non-corrupt = "aside"\n'
    (line,) = problems(CLUSTERS + FLOW + aside + TABLE + 'sample = "1%"\n')
    assert 'on-corrupt = "aside": must be "fail" with transform or test-copy' in line


@pytest.mark.parametrize("key", ["flows", "back"])
def test_clients_do_not_switch_to_a_test_copy(key: str, problems: Problems) -> None:
    back = FLOW.replace("paris-berlin", "back").replace('"paris"', '"x"').replace('"berlin"', '"paris"')
    flows = {"flows": FLOW + 'naming = "identity"\norigin = "local"\n'}
    flows["back"] = back.replace('"x"', '"berlin"') + 'naming = "identity"\norigin = "local"\n'
    flows[key] += 'test-copy.sample = "10%"\n'
    switch = '[switches.s]\nflows = ["paris-berlin"]\nback = ["back"]\n'
    (line,) = problems(CLUSTERS + "".join(flows.values()) + switch)
    assert f"switches.s.{key} = " in line
    assert "must be no test-copy" in line


def test_check_config_prints_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    file = tmp_path / "mirror.toml"
    file.write_text(CLUSTERS + FLOW + TABLE + 'sample = "1%"\n' + HASH, encoding="utf-8")
    result = CliRunner().invoke(app, ["check-config", "--config", str(file)])
    assert result.exit_code == 0, result.output
    assert "value:$.password" in result.output
    assert SECRET not in result.output
