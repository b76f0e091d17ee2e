#!/usr/bin/env python3
"""Fence clients by the gateway that they connect to, such as Kroxylicious, and point it at the other cluster.

    [switches.saturday]
    fence = "hook"
    hook-fence = ["/etc/mirror/hooks/gateway.py", "/etc/kroxylicious", "kroxylicious"]
    hook-switch = ["/etc/mirror/hooks/gateway.py", "/etc/kroxylicious", "kroxylicious"]
    clients = "gateway.example.com:9092"

Arguments: a folder, and the gateway's systemd unit. The folder has one configuration for each cluster, by its name in
mirror.toml: ``paris.yaml``, ``berlin.yaml``. Those of Kroxylicious differ in ``targetCluster``:

    virtualClusters:
      - name: kafka
        targetCluster: {bootstrapServers: "paris-1:9092"}
        gateways:
          - name: default
            portIdentifiesNode: {bootstrapAddress: "gateway.example.com:9092"}

The unit reads ``proxy.yaml``, a symbolic link to one of them, which this makes:

| step | |
|---|---|
| fence | removes the link, so that nothing starts the gateway, and stops the gateway: producers and consumers |
| unfence | links the source, and starts it |
| switch | links the target, and restarts it |

Requirements:
- Only the gateway and ``mirror`` reach the listeners of the clusters: a firewall sees to that. ``mirror cutover`` rolls
  back if a topic grows behind the fence.
- The user may run ``systemctl`` for the unit (polkit, or root). Of several gateways, each host needs the same.
- The groups have members until their ``session.timeout.ms`` has passed behind the fence: up to 45 s by default, beside
  ``quiet-seconds``. ``deadline-seconds`` has to be longer.

With the fence of ACLs (``fence = "acl"``), only ``hook-switch`` is wanted. Each step may be killed and run again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LINK = "proxy.yaml"


def link(folder: Path, cluster: str) -> None:
    """Have the gateway read the configuration of this cluster when it starts next."""
    new = folder / f".{LINK}.new"
    new.unlink(missing_ok=True)
    new.symlink_to(f"{cluster}.yaml")
    new.replace(folder / LINK)


def main() -> None:
    """Do the step that is described on standard input."""
    folder, unit = Path(sys.argv[1]), sys.argv[2]
    facts = json.load(sys.stdin)
    for cluster in (facts["source"], facts["target"]):  # before anything is stopped
        if not (file := folder / f"{cluster}.yaml").is_file():
            sys.exit(f"{file} is missing: it has to be the gateway's configuration for the cluster {cluster}")
    match facts["step"]:
        case "fence":
            (folder / LINK).unlink(missing_ok=True)
            action = "stop"
        case "unfence":
            link(folder, facts["source"])
            action = "start"
        case "switch":
            link(folder, facts["target"])
            action = "restart"
        case step:
            sys.exit(f"the step {step} is unknown")
    if status := subprocess.run(["systemctl", action, unit], check=False).returncode:
        sys.exit(f"systemctl {action} {unit} has ended with exit status {status}")


if __name__ == "__main__":
    main()
