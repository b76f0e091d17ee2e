"""The options of a verification: the same for the command and its script, and contradictions are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mirror.config.load import load
from mirror.errors import ConfigError, FlowError, MirrorError
from mirror.spark.driver.verify_options import VerifyOptions, check_options, parse_position, read_proof
from mirror.verify.proof import Link, Proof

_CONFIG = """
[clusters.a]
"bootstrap.servers" = "a:9092"
[clusters.b]
"bootstrap.servers" = "b:9092"
[flows.one]
source = "a"
target = "b"
topics = ["t"]
[flows.two]
source = "a"
target = "b"
topics = ["u"]
"""


def _options(tmp_path: Path, **options: object) -> VerifyOptions:
    config = tmp_path / "mirror.toml"
    config.write_text(_CONFIG, encoding="utf-8")
    return VerifyOptions(config=config, **options)  # type: ignore[arg-type] # the fields that are named


def _proof(tmp_path: Path, flow: str = "two") -> Path:
    path = tmp_path / "proof.json"
    link = Link(time="", version="", flow=flow, source_cluster_id="a", target_cluster_id="b", settings={}, ranges=())
    path.write_text(Proof().extended(link).to_json(), encoding="utf-8")
    return path


def test_script_gets_the_options_of_the_command() -> None:
    whole = VerifyOptions(
        config=Path("c"),
        flow="f",
        report_dir=Path("r"),
        secrets_dir=Path("s"),
        from_="2026-01-31T00:00:00Z",
        proof=Path("p"),
        allow_foreign=True,
        excerpts=True,
        all_partitions=True,
        as_json=True,
        debug=True,
    )
    checking = VerifyOptions(config=Path("c"), check=Path("k"))
    strict = VerifyOptions(config=Path("c"), strict=True)
    for options in (whole, checking, strict, VerifyOptions(config=Path("c"))):
        assert VerifyOptions.parse(options.to_arguments(), script="verify.py", description="") == options


@pytest.mark.parametrize(
    ("options", "partial"),
    [({}, False), ({"proof": Path("p")}, False), ({"from_": "5"}, True), ({"check": Path("p")}, True)],
)
def test_part_of_what_is_copied_is_known_as_such(options: dict[str, Any], partial: bool) -> None:
    assert VerifyOptions(config=Path("c"), **options).is_partial == partial


def test_wrong_option_ends_with_status_2() -> None:
    with pytest.raises(SystemExit) as ended:
        VerifyOptions.parse(["--config", "c", "--nonsense"], script="verify.py", description="")
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--check", "p", "--proof", "q"), "remove --proof"),
        (("--check", "p", "--from", "5"), "remove --from"),
        (("--from", "yesterday"), "a timestamp such as"),
        (("--strict", "--from", "5"), "everything that the source has"),
        (("--strict", "--check", "p"), "everything that the source has"),
    ],
)
def test_options_that_make_no_sense_end_with_status_2(
    arguments: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        VerifyOptions.parse(["--config", "c", *arguments], script="verify.py", description="")
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


def test_proof_is_that_of_one_flow(tmp_path: Path) -> None:
    options = _options(tmp_path, proof=tmp_path / "new.json")
    with pytest.raises(ConfigError, match="must name one flow"):
        check_options(options, load(options.config))
    named = _options(tmp_path, proof=tmp_path / "new.json", flow="one")
    assert [flow.name for flow in check_options(named, load(named.config)).flows] == ["one"]


@pytest.mark.parametrize("option", ["proof", "check"])
def test_proof_names_its_flow(tmp_path: Path, option: str) -> None:
    options = _options(tmp_path, **{option: _proof(tmp_path)})
    assert [flow.name for flow in check_options(options, load(options.config)).flows] == ["two"]


def test_proof_that_is_to_be_checked_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match="cannot be read"):
        read_proof(_options(tmp_path, check=tmp_path / "missing.json"))
    assert read_proof(_options(tmp_path, proof=tmp_path / "missing.json")) == Proof()
    assert read_proof(_options(tmp_path)) is None


def test_file_that_is_no_proof_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(MirrorError, match=r"other\.json: it is no proof"):
        read_proof(_options(tmp_path, proof=path))


def test_position_is_a_time_or_an_offset() -> None:
    assert parse_position(None) is None
    offset, time = parse_position("17"), parse_position("1970-01-01T00:00:05Z")
    assert offset is not None
    assert offset.offset == 17
    assert time is not None
    assert time.timestamp_ms == 5_000


@pytest.mark.parametrize("text", ["yesterday", "-1", "2026-01-31T00:00:00", "9" * 30])
def test_wrong_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="timestamp"):
        parse_position(text)
