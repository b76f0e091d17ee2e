"""``mirror import`` and ``mirror lint``: what they print and write, and files that are none."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mirror.cli.app import app
from mirror.config.load import load

TEXT = """clusters = a, b
a.bootstrap.servers = a:9092
b.bootstrap.servers = b:9092
b.security.protocol = SASL_PLAINTEXT
b.sasl.mechanism = PLAIN
b.sasl.jaas.config = PlainLoginModule required username="u" password="4711";
a->b.enabled = true
a->b.topics = orders
producer.linger.ms = 5
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "mm2.properties"
    path.write_text(TEXT)
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_what_is_written_is_a_configuration_with_its_secrets(source: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.toml"
    result = run("import", source, "--write", path)
    assert result.exit_code == 0, result.output
    config = load(path, environ={}, secrets_dir=tmp_path / "new-secrets")
    assert config.flows["a-b"].topics == ("orders",)
    assert "4711" in str(config.clusters["b"].client_options()["sasl.jaas.config"])
    (secret,) = (tmp_path / "new-secrets").iterdir()
    assert secret.stat().st_mode & 0o777 == 0o600
    assert secret.parent.stat().st_mode & 0o777 == 0o700
    assert "4711" not in path.read_text() + result.output
    assert "producer.linger.ms" in result.output


def test_nothing_is_replaced_unless_asked(source: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.toml"
    path.write_text("mine")
    result = run("import", source, "--write", path)
    assert result.exit_code == 1
    assert f"{path} exists" in result.output
    assert path.read_text() == "mine"
    assert not (tmp_path / "new-secrets").exists()
    assert run("import", source, "--write", path, "--overwrite").exit_code == 0
    assert path.read_text() != "mine"


def test_without_write_the_configuration_is_printed_alone(source: Path, tmp_path: Path) -> None:
    result = run("import", source)
    assert result.exit_code == 0
    assert "[flows.a-b]" in result.stdout
    assert "ignored:" not in result.stdout
    assert "ignored:" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mm2.properties"]


def test_json_has_stdout_for_itself(source: Path) -> None:
    result = run("import", source, "--json")
    found = json.loads(result.stdout)
    assert found["flows"] == ["a-b"]
    assert found["secrets"] == ["clusters__b__sasl_jaas_config"]
    assert {"kind", "line", "key", "value", "meaning", "action"} == found["findings"][0].keys()
    assert "4711" not in result.stdout


def test_something_left_to_do_has_an_exit_status_of_its_own(source: Path) -> None:
    source.write_text(TEXT + "a->b.groups = (?!x).*\n")
    assert run("import", source).exit_code == 3


@pytest.mark.parametrize(
    "line",
    [
        "a->b.topics.blacklist = secret.*",
        "topics = ${TOPICS_OF_ENVIRONMENT}|orders",
        "topics = orders # all of them",
        "sync.topic.acls.enabled = on",
    ],
)
def test_a_flow_that_its_writer_may_not_mean_has_that_exit_status_too(source: Path, line: str) -> None:
    source.write_text(TEXT.replace("a->b.topics = orders\n", "") + line + "\n")
    assert run("import", source).exit_code in {1, 3}


def test_no_flow_at_all_is_an_error(source: Path, tmp_path: Path) -> None:
    source.write_text(TEXT.replace("enabled = true", "enabled = false"))
    result = run("import", source, "--write", tmp_path / "new.toml")
    assert result.exit_code == 1
    assert "no flow can be carried over" in result.output
    assert not (tmp_path / "new.toml").exists()


def test_lint_shows_findings_and_says_so_by_its_exit_status(source: Path) -> None:
    result = run("lint", source)
    assert result.exit_code == 3
    assert "line 9: producer.linger.ms = 5: " in result.output
    assert "4711" not in result.output
    found = json.loads(run("lint", source, "--json").stdout)["findings"]
    assert any(finding["line"] == 9 and finding["kind"] == "ignored" for finding in found)


NONSENSE = {
    "binary": b"clusters = a\x00\x01\x02",
    "utf-16": TEXT.encode("utf-16"),
    "10 MB": b"a = b\n" * 1_800_000,
    "too many keys": "".join(f"key.{number} = x\n" for number in range(5_001)).encode(),
    "too many clusters": b"clusters = " + b"a," * 50 + b"b",
    "one line of 10 MB": b"x" * 10_000_000,
    "half an escape": b"clusters = \\u12",
    "half a character": b"clusters = \\ud800",
}


@pytest.mark.parametrize("data", NONSENSE.values(), ids=NONSENSE)
@pytest.mark.parametrize("command", ["import", "lint"])
def test_nonsense_is_one_clear_error(data: bytes, command: str, tmp_path: Path) -> None:
    path = tmp_path / "mm2.properties"
    path.write_bytes(data)
    result = run(command, path)
    assert result.exit_code == 1
    (line,) = result.output.splitlines()
    assert str(path) in line


def test_references_to_each_other_are_texts_that_nothing_resolves(source: Path, tmp_path: Path) -> None:
    """``Properties`` resolves nothing, and config providers only ``${provider:key}``: so does MirrorMaker 2."""
    cycle = "one = ${two}\ntwo = ${one}\n"
    source.write_text(TEXT.replace("4711", "${one}") + cycle)
    path = tmp_path / "new.toml"
    result = run("import", source, "--write", path)
    assert result.exit_code == 3, result.output
    assert "line 6: b.sasl.jaas.config = ***: a placeholder of a template is not filled in" in result.output
    config = load(path, environ={}, secrets_dir=tmp_path / "new-secrets")
    assert 'password="${one}"' in str(config.clusters["b"].client_options()["sasl.jaas.config"])
    for line in ("line 10: one = ${two}: ${two}", "line 11: two = ${one}: ${one}"):
        assert f"{line} of a template is not filled in: MirrorMaker 2 takes it as it is" in result.output
    source.write_text(TEXT.replace("b:9092", "${one}") + cycle)
    result = run("import", source)
    assert result.exit_code == 1
    assert 'left out:\n  a->b: the flow a-b is not written: clusters.b."bootstrap.servers": must be' in result.output


def test_no_file_is_one_clear_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        result = run("lint", path)
        assert (result.exit_code, len(result.output.splitlines())) == (1, 1), result.output


@pytest.mark.timed
@pytest.mark.parametrize(
    "text",
    [
        "".join(f"key.{number} = x\n" for number in range(4_999)),
        "clusters = " + ",".join(f"c{number}" for number in range(50)),
        "a = " + "\\\n" * 400_000,
        TEXT + "topics = " + "(" * 400_000,
        TEXT + "topics = " + "a," * 400_000,
    ],
    ids=["many keys", "many clusters", "many continuations", "deep pattern", "many patterns"],
)
def test_large_files_take_bounded_time(text: str, source: Path) -> None:
    source.write_text(text)
    start = time.monotonic()
    assert run("import", source).exit_code in {0, 1, 3}
    assert time.monotonic() - start < 30
