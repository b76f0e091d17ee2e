"""``mirror sandbox``: real brokers for experiments on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from mirror.cli.options import AsJson
from mirror.errors import SandboxError
from mirror.exit_status import FAILED
from mirror.sandbox import pair
from mirror.sandbox.fetch import fetch as fetch_jars
from mirror.sandbox.fetch import kafka_home

app = typer.Typer(no_args_is_help=True, help="Two real Kafka clusters on this machine, source and target.")

Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir", help="Folder of the clusters' data and logs.  [default: in the user's cache]", file_okay=False
    ),
]


@app.command()
def fetch() -> None:
    """Download the brokers (once), without starting any."""
    fetch_jars(on_progress=_print)
    _print(f"Apache Kafka is in {kafka_home()}")


@app.command()
def up(
    directory: Directory = None,
    brokers: Annotated[int, typer.Option(min=1, max=9, help="Brokers in each cluster.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Start both clusters in the background, and print the variables that direct a configuration to them.

    If only a part of them runs, because some were killed, the others are started again with their data.

    Nothing else is printed on stdout: eval "$(mirror sandbox up)". With --json it has the output of `status --json`.
    """
    folder = _folder(directory)
    clusters = pair.up(folder, brokers, on_progress=_print)
    if as_json:
        print(json.dumps([_as_dict(cluster) for cluster in clusters], indent=2))
    for cluster in () if as_json else clusters:
        print(f"export MIRROR_CLUSTERS__{cluster.name.upper()}__BOOTSTRAP_SERVERS={cluster.bootstrap_servers}")
    _print(
        f"both clusters run; their data and logs are in {folder}. To stop them: mirror sandbox down{_option(directory)}"
    )


@app.command()
def down(directory: Directory = None) -> None:
    """Stop both clusters and delete their data."""
    folder = _folder(directory)
    if directory is not None and not folder.is_dir():
        raise SandboxError(f"there is no folder {folder}: no sandbox runs there; give the one that `up` was given")
    _print("stopped, data deleted" if pair.down(folder) else f"nothing to stop in {folder}")


@app.command()
def status(
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Show which clusters run. Exit status: 0 both, 1 not both."""
    folder = _folder(directory)
    clusters = pair.status(folder)
    if as_json:
        print(json.dumps([_as_dict(cluster) for cluster in clusters], indent=2))
    elif not clusters:
        print(f"nothing runs in {folder}")
    else:
        for cluster in clusters:
            print(_as_line(cluster))
    if len(clusters) < len(pair.NAMES) or not all(cluster.running for cluster in clusters):
        raise typer.Exit(FAILED)


def _folder(directory: Path | None) -> Path:
    return directory.expanduser().absolute() if directory else pair.default_directory()


def _option(directory: Path | None) -> str:
    return f" --dir {directory}" if directory else ""


def _print(line: str) -> None:
    typer.echo(line, err=True)


def _as_line(cluster: pair.ClusterStatus) -> str:
    nodes = ", ".join(
        f"node {node.node_id} {f'pid {node.process.pid}' if node.running else 'dead'}" for node in cluster.nodes
    )
    return f"{cluster.name:<7} {'running' if cluster.running else 'broken ':<8} {cluster.bootstrap_servers}  ({nodes})"


def _as_dict(cluster: pair.ClusterStatus) -> dict[str, object]:
    return {
        "name": cluster.name,
        "running": cluster.running,
        "bootstrap_servers": cluster.bootstrap_servers,
        "directory": str(cluster.directory),
        "nodes": [{"id": node.node_id, "pid": node.process.pid, "running": node.running} for node in cluster.nodes],
    }
