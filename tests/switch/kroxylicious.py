"""Kroxylicious, a gateway between clients and clusters, as a service that a program ``systemctl`` starts and stops.

Maven Central has its library, and not its launcher: java/Gateway.java starts it as that does.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mirror.sandbox.cluster import Cluster
from mirror.sandbox.fetch import class_path, fetch, pinned_jars
from mirror.sandbox.folders import cache_folder
from mirror.sandbox.java import find_java
from mirror.sandbox.ports import free_ports
from tests import jvm

VERSION: Final = "0.12.0"
UNIT: Final = "kroxylicious"
_HERE: Final = Path(__file__).parent
_CONFIGURATION: Final = """virtualClusters:
  - name: kafka
    targetCluster: {{bootstrapServers: "{bootstrap}"}}
    gateways:
      - name: default
        portIdentifiesNode:
          bootstrapAddress: "127.0.0.1:{port}"
          nodeStartPort: {of_broker}
          nodeIdRanges: [{{name: brokers, start: 1, end: 1}}]
"""
_SYSTEMCTL: Final = """#!/bin/sh
cd {folder} || exit 1
if [ "$1" != start ] && [ -e pid ]; then
    kill "$(cat pid)"
    while [ -e "/proc/$(cat pid)" ]; do sleep 0.1; done
    rm pid
fi
if [ "$1" != stop ] && [ ! -e pid ]; then
    [ -e proxy.yaml ] || exit 1
    {command} >> log 2>&1 &
    echo $! > pid
fi
"""


@contextmanager
def gateway(folder: Path, clusters: Mapping[str, Cluster]) -> Iterator[str]:
    """A folder as config/hooks/gateway.py wants it, with ``bin/systemctl``; the address that clients connect to."""
    jars = class_path(
        fetch(
            cache_folder() / f"kroxylicious-{VERSION}",
            ivy=_HERE / "gateway.xml",
            pinned=pinned_jars(_HERE / "gateway.sha256"),
            what=f"Kroxylicious {VERSION}",
        )
    )
    classes = jvm.compiled(_HERE / "java" / "Gateway.java", folder, jars)
    port, of_broker = free_ports(2)
    for name, cluster in clusters.items():
        text = _CONFIGURATION.format(bootstrap=cluster.bootstrap_servers, port=port, of_broker=of_broker)
        (folder / f"{name}.yaml").write_text(text)
    command = shlex.join([str(find_java().path), *jvm.PLAIN, "-cp", f"{classes}:{jars}", "Gateway", "proxy.yaml"])
    program = folder / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(_SYSTEMCTL.format(folder=shlex.quote(str(folder)), command=command))
    program.chmod(0o755)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        systemctl(folder, "stop")


def systemctl(folder: Path, action: str) -> None:
    """Start or stop the gateway."""
    subprocess.run([folder / "bin" / "systemctl", action, UNIT], check=True)


def with_path(folder: Path) -> str:
    """The ``PATH`` of a process whose ``systemctl`` is this one."""
    return f"{folder / 'bin'}:{os.environ['PATH']}"
