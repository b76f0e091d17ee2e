#!/usr/bin/env python3
"""Point the name that clients bootstrap by at the cluster that is active, in a file of hosts.

    [switches.saturday]
    hook-switch = ["/etc/mirror/hooks/hosts.py", "/etc/dns/kafka.hosts", "kafka.example.com"]
    clients = "kafka.example.com:9092"

Arguments: the file, the name, and optionally a command that has the name server read the file again, such as
``systemctl kill -s HUP dnsmasq``. CoreDNS (plugin ``hosts``) and dnsmasq with ``--hostsdir`` read it by themselves.

Requirements:
- The file exists, in a folder in which this user may write. It may not be a mount of its own, such as /etc/hosts of a
  container, since the file is replaced.
- Both clusters have the same ports: a name cannot carry another one.
- The time to live of the name is short. Clients resolve it when they start, or after all brokers that they know are
  gone (``metadata.recovery.strategy = rebootstrap``, the default since Kafka 4.0): restart others.

What the file has for other names stays. It is replaced at once and in whole, so that this may be killed and run again.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path


def addresses(bootstrap: str) -> tuple[list[str], set[str]]:
    """Return the IP addresses of ``host:port,...`` in their order, and the ports."""
    found: list[str] = []
    ports = set()
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        ports.add(port)
        try:
            resolved = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except OSError as error:
            sys.exit(f"{host} cannot be resolved: {error.strerror}")
        found.extend(str(socket_address[0]) for *_, socket_address in resolved)
    return list(dict.fromkeys(found)), ports


def pointed(text: str, name: str, ips: list[str]) -> str:
    """Return the file's ``text`` in which ``name`` has these addresses, and no other."""
    kept = []
    for line in text.splitlines():
        entry, hash_sign, comment = line.partition("#")
        ip, *names = entry.split() or [""]
        if name not in names:
            kept.append(line)
        elif others := [one for one in names if one != name]:
            kept.append(" ".join([ip, *others]) + (f" {hash_sign}{comment}" if hash_sign else ""))
    return "".join(f"{line}\n" for line in [*kept, *(f"{ip} {name}" for ip in ips)])


def replace(file: Path, text: str) -> None:
    """Replace the file, with its owner and mode, so that a reader sees the old text or the new one."""
    new = file.with_name(f".{file.name}.new")
    with new.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    shutil.copymode(file, new)
    if os.geteuid() == 0:
        owner = file.stat()
        os.chown(new, owner.st_uid, owner.st_gid)
    new.replace(file)


def main() -> None:
    """Rewrite the file for the step that is described on standard input."""
    file, name, reload = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    facts = json.load(sys.stdin)
    ips, ports = addresses(facts["target_bootstrap"])
    # The source may be lost, and its names with it: only its ports are compared.
    source_ports = {address.rpartition(":")[2] for address in facts["source_bootstrap"].split(",")}
    if ports != source_ports:
        sys.exit(f"{facts['target']} has the ports {sorted(ports)}, and {facts['source']} {sorted(source_ports)}")
    replace(file, pointed(file.read_text("utf-8"), name, ips))
    if reload and (status := subprocess.run(reload, check=False).returncode):
        sys.exit(f"{reload[0]} has ended with exit status {status}")
    sys.stdout.write(f"{name} is {', '.join(ips)} ({facts['target']})\n")


if __name__ == "__main__":
    main()
