"""``--json``: every command that prints has it, and `run` and `stream` hand it to their job."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.cli.commands import run as run_command
from mirror.sandbox import pair
from mirror.sandbox.process import Process
from mirror.spark.driver import batch_job as job
from mirror.spark.driver import stream_job
from mirror.spark.driver.job_options import JobOptions
from mirror.spark.driver.launch.submission import Submission

EXAMPLE = Path(__file__).parents[2] / "config" / "example.toml"


@pytest.mark.parametrize(
    "command",
    ["run", "stream", "plan", "status", "offsets", "stop", "check-config", "demo", "sandbox up", "sandbox status"],
)
def test_every_command_that_prints_has_json(command: str) -> None:
    result = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "120"})
    assert result.exit_code == 0
    assert "--json" in result.stdout


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[Submission]:
    """What would be submitted to Spark."""
    made = list[Submission]()

    @dataclasses.dataclass(frozen=True, slots=True)
    class Kept(Submission):
        def run(self) -> int:
            made.append(self)
            return 3

    monkeypatch.setattr(run_command, "Submission", Kept)
    return made


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("command", ["run", "stream"])
def test_the_job_parses_every_option_of_its_command(
    command: str, asked: bool, submitted: list[Submission], tmp_path: Path
) -> None:
    arguments = [command, "--config", str(EXAMPLE), "--flow", "paris-berlin", "--report-dir", "reports"]
    more = ["--json", "--debug", "--all", "--secrets-dir", str(tmp_path)] if asked else []
    result = CliRunner().invoke(app, [*arguments, *more], env={"MIRROR_DEBUG": None})
    assert (result.exit_code, result.stdout) == (3, "")
    (one,) = submitted
    parsed = (job if command == "run" else stream_job).parse(one.arguments)
    assert parsed == JobOptions(
        config=EXAMPLE,
        flow="paris-berlin",
        report_dir=Path("reports"),
        secrets_dir=tmp_path if asked else None,
        all_partitions=asked,
        as_json=asked,
        debug=asked,
    )


def test_a_stream_that_is_to_end_by_itself_is_refused(
    submitted: list[Submission], capsys: pytest.CaptureFixture[str]
) -> None:
    instead = "`mirror run` copies what there is and ends"
    result = CliRunner().invoke(app, ["stream", "--config", str(EXAMPLE), "--available-now"], env={"COLUMNS": "200"})
    assert (result.exit_code, instead in result.stderr) == (2, True)
    assert submitted == []
    with pytest.raises(SystemExit, match="2"):
        stream_job.parse(["--config", str(EXAMPLE), "--available-now"])
    assert instead in capsys.readouterr().err
    assert "--available-now" not in CliRunner().invoke(app, ["stream", "--help"]).stdout


def test_a_sandbox_prints_its_addresses_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = pair.NodeStatus(1, Process(17, "then"), running=True)
    clusters = [
        pair.ClusterStatus(name, tmp_path / name, f"127.0.0.1:{at}", (node,)) for at, name in enumerate(pair.NAMES, 1)
    ]
    monkeypatch.setattr(pair, "up", lambda *_, **__: clusters)
    monkeypatch.setattr(pair, "status", lambda *_: clusters)
    started = CliRunner().invoke(app, ["sandbox", "up", "--json", "--dir", str(tmp_path)])
    assert [(each["name"], each["bootstrap_servers"]) for each in json.loads(started.stdout)] == [
        ("source", "127.0.0.1:1"),
        ("target", "127.0.0.1:2"),
    ]
    assert started.stdout == CliRunner().invoke(app, ["sandbox", "status", "--json"]).stdout
    exported = CliRunner().invoke(app, ["sandbox", "up", "--dir", str(tmp_path)]).stdout
    assert exported.splitlines()[0] == "export MIRROR_CLUSTERS__SOURCE__BOOTSTRAP_SERVERS=127.0.0.1:1"
