"""Every command says after some seconds which cluster it waits for, and ends within its ``--timeout``."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import typer

from mirror.cli import bounded
from mirror.cli.app import _COMMANDS, _load
from mirror.errors import FlowError, MirrorError
from mirror.spark import concurrent_calls
from tests.runtime.listener import Listener

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S: Final = 3.0
"""A cluster has half of it to answer; a busy machine prints the notice, which is due after 0.2 s, before that."""
GRACE_S: Final = 17.0
"""All commands run at once here. One that ignores its bound would wait for 30 s and more."""
WITHOUT_CLUSTERS: Final = frozenset(
    ["init", "report", "check-config", "config-schema", "completion", "import", "lint", "demo", "sandbox", "positions"]
)
"""Commands that contact no configured cluster; those of `positions` do: test_positions.py."""
WAITING: Final = {"run", "stream", "exporter", "cutover", "failover", "failback"}
"""They begin Spark beside the check that prints the line (tests/spark/driver/test_flows_waiting.py), and a stream waits
for its clusters, which the exporter shows as away; a switch has its own deadline. No --timeout bounds how long they go
on."""
DIAGNOSING: Final = {"doctor"}
"""It takes a tenth of the time for each step, and prints what it finds of each cluster instead."""

BOUNDS: Final = '"default.api.timeout.ms" = 2000\n"request.timeout.ms" = 1500'
CONFIGURATION = """
[clusters.{name}-a]
"bootstrap.servers" = "{source}"
[clusters.{name}-b]
"bootstrap.servers" = "{target}"
[flows.f]
source = "{name}-a"
target = "{name}-b"
topics = ["orders"]
aside = "beside"
[flows.f.groups]
"""


@pytest.fixture(params=["refuse", "never answer"])
def servers(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Two addresses that refuse connections, or accept them and never answer."""
    with contextlib.ExitStack() as stack:
        if request.param == "refuse":
            ports = [stack.enter_context(contextlib.closing(socket.socket())) for _ in range(2)]
            for port in ports:
                port.bind(("127.0.0.1", 0))  # nothing listens there, and nothing else can
            source, target = (f"127.0.0.1:{port.getsockname()[1]}" for port in ports)
        else:
            source, target = (stack.enter_context(contextlib.closing(Listener())).address for _ in range(2))
        yield source, target


def arguments(command: Any, name: str, config: Path) -> list[str]:
    """Return a command line with a value for each required parameter of ``command``."""
    values = {"config": str(config), "file": str(config), "flow": "f", "partition": "0", "wanted": "0"}
    options, others = list[str](), list[str]()
    for one in command.params:
        if one.required:
            value = values.get(one.name, "orders")
            if one.param_type_name == "option":
                options += [one.opts[0], value]
            else:
                others.append(value)
    report = (
        ["--report-dir", str(config.parent / name)] if any("--report-dir" in one.opts for one in command.params) else []
    )
    return [*options, *report, "--timeout", f"{TIMEOUT_S}", "--", *others]


class Call:
    """A command in a thread of its own."""

    def __init__(self, name: str, folder: Path, servers: tuple[str, str]) -> None:
        self.name = name
        config = folder / f"{name}.toml"
        config.write_text(CONFIGURATION.format(name=name, source=servers[0], target=servers[1]))
        self._command = _load(name)
        # Typer changes the environment while it builds the parameters: one command at a time, here.
        self._context = self._command.make_context(name, arguments(self._command, name, config))
        self.seconds = float("inf")
        self.outcome: object = "still running"
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        began_s = time.monotonic()
        try:
            with self._context:
                self.outcome = self._command.invoke(self._context)
        except typer.Exit as ended:
            self.outcome = ended.exit_code
        except (MirrorError, SystemExit) as error:
            self.outcome = error
        self.seconds = time.monotonic() - began_s


def test_each_command_names_the_cluster_and_ends_in_time(
    tmp_path: Path, servers: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(concurrent_calls, "_FIRST_NOTICE_S", 0.2)
    calls = [Call(name, tmp_path, servers) for name in _COMMANDS if name not in WITHOUT_CLUSTERS | WAITING]
    for call in calls:
        call.thread.start()
    for call in calls:
        call.thread.join(40)
    err = capsys.readouterr().err
    assert {call.name: call.seconds for call in calls if call.seconds > TIMEOUT_S + GRACE_S} == {}
    silent = [
        call.name
        for call in calls
        if call.name not in DIAGNOSING and f"cluster {call.name}-b has not answered for 0 s" not in err
    ]
    assert silent == [], err
    assert [call.name for call in calls if call.outcome in {0, None}] == [], "none has succeeded"


def test_a_switch_names_the_clusters_and_begins_nothing(
    tmp_path: Path, servers: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(concurrent_calls, "_FIRST_NOTICE_S", 0.2)
    config = tmp_path / "mirror.toml"
    text = CONFIGURATION.format(name="c", source=servers[0], target=servers[1])
    for line, more in {"[clusters.c-a]": BOUNDS, "[clusters.c-b]": BOUNDS, "[flows.f]": 'naming = "identity"'}.items():
        text = text.replace(line, f"{line}\n{more}")
    config.write_text(f'{text}[switches.s]\nflows = ["f"]\n')
    folder = tmp_path / "proofs"
    with pytest.raises(MirrorError, match="cluster c-b"):
        _load("cutover").main(["--config", str(config), "--folder", str(folder), "s"], standalone_mode=False)
    err = capsys.readouterr().err
    assert "cluster c-a has not answered for 0 s" in err
    assert "cluster c-b has not answered for 0 s" in err
    assert not folder.exists()


def test_commands_without_clusters_take_no_configuration() -> None:
    taking = {
        name for name in _COMMANDS if any("--config" in one.opts for one in getattr(_load(name), "params", ()))
    } - {"check-config", "demo"}
    assert taking == _COMMANDS.keys() - WITHOUT_CLUSTERS


def test_the_timeout_of_the_command_line_bounds_what_waits_for_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    def hang(*_: object) -> None:
        ended.wait(50)
        raise FlowError("the thread that is left behind must not go on to the clusters")

    monkeypatch.setattr("mirror.cli.commands.forget.check_answers", hang)
    call = Call("forget", tmp_path, ("a:1", "b:1"))
    call.thread.start()
    call.thread.join(40)
    ended.set()
    assert isinstance(call.outcome, FlowError)
    assert f"has not ended within --timeout {TIMEOUT_S:g}" in str(call.outcome)


def test_a_command_that_waits_for_something_else_ends_in_time() -> None:
    ended = threading.Event()

    def command(*, timeout: float | None = None, watch: bool = False) -> None:
        del timeout, watch
        ended.wait(50)

    began_s = time.monotonic()
    with pytest.raises(FlowError, match=r"has not ended within --timeout 0\.2; repeat it with more seconds"):
        bounded.bounded(command)(timeout=0.2)
    ended.set()
    assert time.monotonic() - began_s < 40
    bounded.bounded(command)(timeout=0.2, watch=True)


def test_what_a_bounded_command_raises_is_passed_on() -> None:
    def command(*, timeout: float) -> None:
        raise TimeoutError(f"its own, not {timeout}")

    with pytest.raises(TimeoutError, match="its own"):
        bounded.bounded(command)(timeout=30)
