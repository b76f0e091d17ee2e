#!/usr/bin/env python3
"""Write the address of the active cluster into a ConfigMap of Kubernetes, and roll out the deployments that read it.

    [switches.saturday]
    hook-switch = ["/etc/mirror/hooks/configmap.py", "shop", "kafka", "bootstrap.servers", "orders", "billing"]
    hook-seconds = 300

Arguments: the namespace, the ConfigMap, its key, and optionally deployments. Of each of these an annotation of the pods
becomes the address, so that Kubernetes replaces them, once per address however often this is run. ``hook-seconds`` has
to be longer than the roll-out. Without deployments, the applications have to read the ConfigMap again by themselves.

Requirements: ``kubectl`` in the PATH of ``mirror``, logged in (``KUBECONFIG``, or the service account of its pod) as a
user with these rules in that namespace:

    - {apiGroups: [""], resources: [configmaps], resourceNames: [kafka], verbs: [get, patch]}
    - {apiGroups: [apps], resources: [deployments], verbs: [get, list, watch, patch]}

A patch that holds already changes nothing, so that this may be killed and run again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

ANNOTATION = "mirror/bootstrap-servers"


def kubectl(namespace: str, *arguments: str) -> None:
    """Run kubectl, whose output goes to the log of ``mirror``; exit if it fails."""
    if status := subprocess.run(["kubectl", "--namespace", namespace, *arguments], check=False).returncode:
        sys.exit(f"kubectl {arguments[0]} has ended with exit status {status}")


def patch(namespace: str, kind: str, name: str, change: dict[str, Any]) -> None:
    """Merge a change into an object."""
    kubectl(namespace, "patch", kind, name, "--type", "merge", "--patch", json.dumps(change))


def main() -> None:
    """Write the address of the step that is described on standard input."""
    namespace, name, key, *deployments = sys.argv[1:]
    address = json.load(sys.stdin)["target_bootstrap"]
    patch(namespace, "configmap", name, {"data": {key: address}})
    template = {"metadata": {"annotations": {ANNOTATION: address}}}
    for deployment in deployments:
        patch(namespace, "deployment", deployment, {"spec": {"template": template}})
    for deployment in deployments:
        kubectl(namespace, "rollout", "status", f"deployment/{deployment}")


if __name__ == "__main__":
    main()
