"""MirrorMaker 2 as Strimzi runs it, and a stand-in for ``kubectl`` that its resource is asked for and changed by.

The connectors, their names, the worker and its topics are those that Strimzi's operator makes of the resource.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.e2e.connect_worker import Worker

RESOURCE: Final = """apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata:
  name: mm2
  namespace: kafka
spec:
  connectCluster: berlin
  replicas: 1
  clusters:
    - alias: paris
      bootstrapServers: {source}
    - alias: berlin
      bootstrapServers: {target}
  mirrors:
    - sourceCluster: paris
      targetCluster: berlin
      topicsPattern: orders|clicks
      groupsPattern: .*
      sourceConnector:
        tasksMax: 2
        config:
          replication.factor: 1
          offset-syncs.topic.replication.factor: 1
          sync.topic.acls.enabled: false
      checkpointConnector:
        config:
          checkpoints.topic.replication.factor: 1
          sync.group.offsets.enabled: true
"""
KUBECTL: Final = """#!{python}
import json, sys, urllib.request
from urllib.parse import quote

def ask(method, path):
    request = urllib.request.Request("http://127.0.0.1:{port}/connectors/" + quote(path), method=method)
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read() or b"null")

NAMES = {names!r}
verb, *named = sys.argv[1:6]
assert named == ["kafkamirrormaker2", "mm2", "--namespace", "kafka"], named
match [verb, *sys.argv[6:]]:
    case ["get", "--output", "yaml"]:
        print(open({resource!r}).read(), end="")
    case ["get", "--output", "jsonpath={{.status.connectors[*].connector.state}}"]:
        print(*(ask("GET", name + "/status")["connector"]["state"] for name in NAMES.values()))
    case ["patch", "--type", "json", "--patch", patch]:
        for change in json.loads(patch):
            *parents, connector, field = change["path"].split("/")
            assert (parents, field) == (["", "spec", "mirrors", "0"], "state"), change
            ask("PUT", NAMES[connector] + {{"stopped": "/stop", "running": "/resume"}}[change["value"]])
        print("kafkamirrormaker2.kafka.strimzi.io/mm2 patched")
    case other:
        sys.exit(f"not understood: {{other}}")
"""
_NAMES: Final = {
    f"{kind}Connector": f"paris->berlin.Mirror{kind.capitalize()}Connector" for kind in ("source", "checkpoint")
}
_BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"
_SETTINGS: Final = {
    "key.converter": _BYTES,
    "value.converter": _BYTES,
    "plugin.discovery": "service_load",
    "offset.flush.interval.ms": "2000",
}


@contextlib.contextmanager
def strimzi(folder: Path, source: str, target: str) -> Iterator[Path]:
    """MirrorMaker 2 copies orders and clicks while the block runs; the folder that has ``kubectl``."""
    worker = Worker(folder, "worker", target, "mirrormaker2-cluster", _SETTINGS)
    try:
        resource, programs = folder / "mm2.yaml", folder / "bin"
        resource.write_text(RESOURCE.format(source=source, target=target))
        programs.mkdir()
        kubectl = programs / "kubectl"
        kubectl.write_text(
            KUBECTL.format(python=sys.executable, port=worker.port, names=_NAMES, resource=str(resource))
        )
        kubectl.chmod(0o755)
        for kind, name in _NAMES.items():
            worker.run(name, _connector(kind, source, target))
        yield programs
    finally:
        worker.close()


def _connector(kind: str, source: str, target: str) -> dict[str, str]:
    of_kind = {
        "sourceConnector": {
            "topics": "orders|clicks",
            "tasks.max": "2",
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "sync.topic.acls.enabled": "false",
        },
        "checkpointConnector": {
            "groups": ".*",
            "checkpoints.topic.replication.factor": "1",
            "sync.group.offsets.enabled": "true",
        },
    }
    return {
        "connector.class": f"org.apache.kafka.connect.mirror.{_NAMES[kind].partition('.')[2]}",
        "source.cluster.alias": "paris",
        "target.cluster.alias": "berlin",
        "source.cluster.bootstrap.servers": source,
        "target.cluster.bootstrap.servers": target,
        "key.converter": _BYTES,
        "value.converter": _BYTES,
        "header.converter": _BYTES,
        **of_kind[kind],
    }
