"""Formats the data folders of a KRaft cluster, by the release's tool or as it did the last time.

The tool takes a second of CPU for each node, half as long as a broker's start. What it writes for nodes of the same
release and feature levels differs in ids alone, so that it is kept in the cache folder for the next clusters.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from mirror.errors import SandboxError
from mirror.sandbox import process
from mirror.sandbox.folders import cache_folder
from mirror.sandbox.node import Node, excerpt, format_command

_IDS: Final = "meta.properties"
_LEVELS: Final = "bootstrap.checkpoint"
"""A snapshot with the feature levels, which the controller reads at its first start."""
_READ_BY_THE_TOOL: Final = ("log.dir", "metadata.log.dir", "inter.broker.protocol.version", "unstable.")
"""Beginnings of properties by which the tool writes something else."""
_TIMEOUT_S: Final = 90.0
_POLL_S: Final = 0.05


def new_id() -> str:
    """Return a new id as Kafka has them: a UUID in URL-safe base64.

    An id that begins with a dash would be parsed as an option.
    """
    return "M" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


def kept_folder(class_path: str, features: Mapping[str, int], properties: Iterable[str]) -> Path | None:
    """Return where the files of such nodes are kept; None if ``properties`` (names) have the tool write others."""
    if any(name.startswith(_READ_BY_THE_TOOL) for name in properties):
        return None
    words = [class_path, *(f"{name}={level}" for name, level in sorted(features.items()))]
    return cache_folder() / "formatted" / hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def format_as_kept(kept: Path, nodes: Sequence[Node], cluster_id: str) -> bool:
    """Write the data folders of ``nodes`` from the files in ``kept``. Return False if these are not there."""
    try:
        ids, levels = (kept / _IDS).read_text(encoding="ascii"), (kept / _LEVELS).read_bytes()
    except OSError:
        return False
    for node in nodes:
        own = {"node.id": str(node.node_id), "cluster.id": cluster_id, "directory.id": new_id()}
        lines = (line.partition("=")[::2] for line in ids.splitlines() if "=" in line)
        node.data.mkdir()
        (node.data / _IDS).write_text("".join(f"{name}={own.get(name, value)}\n" for name, value in lines), "ascii")
        (node.data / _LEVELS).write_bytes(levels)
    return True


def keep(kept: Path, data: Path) -> None:
    """Keep what the tool has written into the folder ``data``. Where nothing can be kept, the tool runs each time."""
    if {path.name for path in data.iterdir()} != {_IDS, _LEVELS}:
        return
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".keep-", dir=kept.parent) as folder:
            Path(shutil.copytree(data, Path(folder) / "whole")).rename(kept)  # never half of it
    except OSError:
        return


def format_by_tool(
    java: Path,
    options: Sequence[str],
    class_path: str,
    nodes: Sequence[Node],
    cluster_id: str,
    features: Mapping[str, int],
) -> None:
    """Run the release's tool for each of ``nodes``, at the same time. Raises SandboxError with what it says."""
    running = [
        process.launch(
            format_command(java, options, class_path, node, cluster_id, features),
            output=node.folder / "format.log",
            outlives_owner=False,
        )
        for node in nodes
    ]
    try:
        until = time.monotonic() + _TIMEOUT_S
        while any(formatter.alive() for formatter in running) and time.monotonic() < until:
            time.sleep(_POLL_S)
    finally:
        process.stop(running, grace_s=0)
    for node, formatter in zip(nodes, running, strict=True):
        if formatter.child is None or formatter.child.returncode != 0:
            output = excerpt((node.folder / "format.log").read_text(encoding="utf-8", errors="replace"), lines=2)
            raise SandboxError(f"the data folder of node {node.node_id} could not be formatted:\n{output}")
