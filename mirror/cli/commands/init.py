"""``mirror init``: write a first configuration, and say how to go on."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from mirror.cluster.auth.security import MECHANISMS, PROTOCOLS
from mirror.config.first_file import FirstCluster, first_file, placeholders
from mirror.config.load import load
from mirror.config.problems import plain
from mirror.errors import ConfigError
from mirror.spark.preflight.grants import grant_commands
from mirror.spark.preflight.permissions import Side

if TYPE_CHECKING:
    from mirror.config.models import MirrorConfig

_DEFAULT: Final = Path("mirror.toml")
_NAME_HELP: Final = "Its name in the configuration."
_PROTOCOL_HELP: Final = f"Its security.protocol: {', '.join(PROTOCOLS)}."
_MECHANISM_HELP: Final = f"Its sasl.mechanism: {', '.join(MECHANISMS)}."
_CA_HELP: Final = "The file with the CA of its certificates, if the system does not know it."
_USER_HELP: Final = "Its user, of PLAIN and SCRAM; a password is never written."


class _Given(NamedTuple):
    """The options about one cluster."""

    bootstrap: str | None
    name: str
    protocol: str
    mechanism: str | None
    username: str | None
    ca: Path | None


def init(
    source: Annotated[
        str | None, typer.Option("--source", help="Brokers to copy from: host:port, with commas.")
    ] = None,
    target: Annotated[str | None, typer.Option("--target", help="Brokers to copy to: host:port, with commas.")] = None,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", help="A topic, or a regular expression; may be repeated.")
    ] = None,
    source_name: Annotated[str, typer.Option("--source-name", help=_NAME_HELP)] = "source",
    source_protocol: Annotated[str, typer.Option("--source-protocol", help=_PROTOCOL_HELP)] = PROTOCOLS[0],
    source_mechanism: Annotated[str | None, typer.Option("--source-mechanism", help=_MECHANISM_HELP)] = None,
    source_user: Annotated[str | None, typer.Option("--source-user", help=_USER_HELP)] = None,
    source_ca: Annotated[Path | None, typer.Option("--source-ca", help=_CA_HELP)] = None,
    target_name: Annotated[str, typer.Option("--target-name", help=_NAME_HELP)] = "target",
    target_protocol: Annotated[str, typer.Option("--target-protocol", help=_PROTOCOL_HELP)] = PROTOCOLS[0],
    target_mechanism: Annotated[str | None, typer.Option("--target-mechanism", help=_MECHANISM_HELP)] = None,
    target_user: Annotated[str | None, typer.Option("--target-user", help=_USER_HELP)] = None,
    target_ca: Annotated[Path | None, typer.Option("--target-ca", help=_CA_HELP)] = None,
    output: Annotated[Path, typer.Option("--output", dir_okay=False, help="The file; it must not exist.")] = _DEFAULT,
) -> None:
    """Write a first configuration of two clusters and a flow, and print what to grant and how to go on.

    At a terminal, it asks for what is not given. Secrets stay outside of the file, which names where they belong.

    Exit status: 0 written, 1 the file exists or what was given is not valid, 2 wrong usage.
    """
    if output.exists():
        raise _exists(output)
    clusters = (
        _cluster("source", _Given(source, source_name, source_protocol, source_mechanism, source_user, source_ca)),
        _cluster("target", _Given(target, target_name, target_protocol, target_mechanism, target_user, target_ca)),
    )
    topics = topics or _asked("--topic", "topics to copy, with commas", None).replace(" ", "").split(",")
    text = first_file(*clusters, topics)
    config = load(output, text=text.encode(), environ=placeholders(*clusters))
    try:
        with output.open("x", encoding="utf-8") as file:  # another process may have written it meanwhile
            file.write(text)
    except FileExistsError:
        raise _exists(output) from None
    except OSError as error:
        raise ConfigError([plain(str(output), "", f"cannot be written: {error.strerror}")]) from error
    _print(output, clusters, config)


def _print(written: Path, clusters: tuple[FirstCluster, FirstCluster], config: MirrorConfig) -> None:
    """Print what is to be set and granted, and how to go on."""
    print(f"written: {written}")
    for one in clusters:
        for key, variable in one.outside().items():
            print(f"to set: {variable} ({key} of {one.name}), or as a file of --secrets-dir, as {written} says")
    print("to grant, if the clusters have ACLs (with --command-config FILE for an administrator's login):")
    users = {side: f"User:{one.username or '...'}" for side, one in zip(Side, clusters, strict=True)}
    (flow,) = config.flows.values()
    for command in grant_commands(config, flow, users):
        print(f"  {command}")
    print("how to go on:")
    print(f"  export MIRROR_CONFIG={shlex.quote(str(written))}")
    print("  mirror doctor   # what keeps it from working")
    print("  mirror plan     # what a run would copy and change")
    print("  mirror run      # copy; or follow: mirror stream")
    print("  mirror verify   # compare both sides")


def _cluster(side: str, given: _Given) -> FirstCluster:
    """Return what is given of a cluster; if its brokers are not, ask for all of it."""
    if given.bootstrap is not None:
        login = (given.protocol, given.mechanism or "", given.username or "")
        return FirstCluster(given.name, given.bootstrap, *login, str(given.ca or ""))
    bootstrap = _asked(f"--{side}", f"{side}: brokers, as host:port with commas", None)
    name = _asked("", f"{side}: its name", given.name)
    protocol = _asked("", f"{side}: security.protocol", given.protocol, PROTOCOLS)
    mechanism = given.mechanism or ""
    if protocol.startswith("SASL"):
        mechanism = _asked("", f"{side}: sasl.mechanism", given.mechanism or "SCRAM-SHA-512", MECHANISMS)
    one = FirstCluster(name, bootstrap, protocol, mechanism)
    if one.has_username:
        one = replace(one, username=_asked("", f"{side}: sasl.username", given.username))
    if one.has_tls:
        question = f"{side}: the file with the CA of its certificates, or nothing if the system knows it"
        one = replace(one, ca=_asked("", question, str(given.ca or "")))
    return one


def _asked(option: str, question: str, default: str | None, choices: tuple[str, ...] = ()) -> str:
    """Ask at the terminal. Raises BadParameter if there is none."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise typer.BadParameter("is missing, and no terminal is there to ask at", param_hint=option)
    shown = f"{question} ({', '.join(choices)})" if choices else question
    answer: str = typer.prompt(shown, default=default, err=True, value_proc=partial(_one_of, choices))
    return answer


def _one_of(choices: tuple[str, ...], answer: str) -> str:
    if choices and answer not in choices:
        raise typer.BadParameter(f"must be one of {', '.join(choices)}")
    return answer.strip()


def _exists(path: Path) -> ConfigError:
    return ConfigError([plain(str(path), "", "exists; give another path with --output")])
