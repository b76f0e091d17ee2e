"""The first copy between two clusters with TLS and passwords, as someone makes it who has the wheel and the documents.

``python -m tests.installation.newcomer`` types the commands of :data:`STEPS` in a new home, and writes them into
jobs/INSTALL.md with the time that each has taken. It needs pipx, which it installs beside that home, and ``make dist``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from mirror.sandbox.cluster import Cluster
from mirror.version import VERSION
from tests import jvm
from tests.e2e.broker_side import Side
from tests.generated_blocks import with_block
from tests.installation.lowest import ROOT, outside
from tests.security.certificates import Authority

DOCUMENT: Final = ROOT / "jobs" / "INSTALL.md"
WHEEL: Final = f"kafka_spark_mirror-{VERSION}-py3-none-any.whl"
RECORDS: Final = 100_000
_USER: Final = "mirror"
_PASSWORD: Final = "of-the-newcomer"
_LISTENER: Final = "CLIENTS"


@dataclass(frozen=True)
class Step:
    """A command, as the document has it."""

    command: str
    does: str
    status: int = 0
    """Its exit status."""
    prints: str = ""
    """A part of what it prints."""


def _side(side: str, name: str) -> str:
    login = f"--{side}-protocol SASL_SSL --{side}-mechanism SCRAM-SHA-512 --{side}-user mirror"
    return f"--{side} {name}-1:9093 --{side}-name {name} --{side}-ca ca.pem \\\n    {login}"


STEPS: Final = (
    Step(f"pipx install 'dist/{WHEEL}[spark,report]'", "downloads PySpark, 440 MB"),
    Step(
        f"mirror init --topic orders {_side('source', 'paris')} \\\n    {_side('target', 'berlin')}",
        "writes mirror.toml, and what to set and to grant",
        prints="MIRROR_CLUSTERS__BERLIN__SASL_PASSWORD",
    ),
    Step("mirror doctor", "what keeps it from working"),
    Step("mirror plan --out plan.json", "what would be copied and changed", status=3, prints="orders"),
    Step("mirror apply plan.json", "creates the topic", prints="topic paris.orders was created"),
    Step("mirror run", f"copies {RECORDS:,} records"),
    Step("mirror verify --strict", "compares them one by one", prints="3 of 3 equal"),
)
EXPORTS: Final = {
    "MIRROR_CONFIG": "mirror.toml",
    "MIRROR_CLUSTERS__PARIS__SASL_PASSWORD": _PASSWORD,
    "MIRROR_CLUSTERS__BERLIN__SASL_PASSWORD": _PASSWORD,
}
"""What is set after ``mirror init``, which names it."""
_BEFORE_EXPORT: Final = 2


def block(seconds: Mapping[str, float]) -> str:
    """Return the part of the document, with the seconds that each command has taken."""
    shown = {name: value if name == "MIRROR_CONFIG" else "..." for name, value in EXPORTS.items()}
    lines = [f"{one.command}  # {max(1, round(seconds[one.command]))} s: {one.does}" for one in STEPS]
    lines.insert(_BEFORE_EXPORT, "export " + " ".join(f"{name}={value}" for name, value in shown.items()))
    minutes = sum(seconds.values()) / 60
    return "\n".join(["```", *lines, "```", "", f"These commands took {minutes:.1f} minutes on two cores.", ""])


def type_steps(folder: Path, addresses: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, float]:
    """Type all commands in ``folder``, with these ``addresses`` in place of the document's; return the seconds of each.

    Raises AssertionError with what a command has printed, if that or its exit status is not as expected.
    """
    seconds = {}
    variables = dict(environment)
    for number, one in enumerate(STEPS):
        if number == _BEFORE_EXPORT:
            variables |= EXPORTS
        command = one.command
        for name, address in addresses.items():
            command = command.replace(name, address)
        began = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=variables, capture_output=True, text=True, check=False
        )
        seconds[one.command] = time.monotonic() - began
        sys.stdout.write(f"$ {command}\n{done.stdout}{done.stderr}[{done.returncode}, {seconds[one.command]:.1f} s]\n")
        assert (done.returncode, one.prints in done.stdout) == (one.status, True), f"{command}\n{done.stderr}"
    return seconds


def prepared(stack: ExitStack, folder: Path, authority: Authority) -> str:
    """Start a cluster that wants TLS and a password of its clients; return the address of that listener."""
    identity = authority.identity(folder.name, "127.0.0.1")
    at = f"listener.name.{_LISTENER.lower()}"
    properties = {
        f"{at}.ssl.keystore.type": "PEM",
        f"{at}.ssl.keystore.location": str(identity.path),
        f"{at}.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        f"{at}.scram-sha-512.sasl.jaas.config": ("org.apache.kafka.common.security.scram.ScramLoginModule required;"),
    }
    cluster = stack.enter_context(
        Cluster(properties=properties, listeners={_LISTENER: "SASL_SSL"}, heap=jvm.BROKER, directory=folder)
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    user = UserScramCredentialUpsertion(
        _USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), _PASSWORD.encode()
    )
    admin.alter_user_scram_credentials([user])[_USER].result(timeout=60)
    if folder.name == "paris":
        side = Side(cluster.bootstrap_servers)
        side.create("orders", 3)
        side.fill("orders", [b"order %d" % number for number in range(RECORDS)])
    return cluster.bootstrap(_LISTENER)


def newcomer(folder: Path, wheel: Path) -> dict[str, float]:
    """Start both clusters, and type all commands in an empty home; return the seconds that each has taken."""
    venv.create(folder / "pipx", with_pip=True)
    pip = [str(folder / "pipx" / "bin" / "python"), "-m", "pip", "install", "--quiet", "pipx"]
    subprocess.run(pip, env=outside(), check=True)
    home = folder / "home"
    (home / "dist").mkdir(parents=True)
    shutil.copy(wheel, home / "dist")
    authority = Authority(folder, "ca")
    shutil.copy(authority.path, home / "ca.pem")
    path = f"{home / '.local' / 'bin'}:{folder / 'pipx' / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    of_host = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name == "JAVA_HOME"}
    environment = {**of_host, "HOME": str(home), "PATH": path, "PIPX_DEFAULT_PYTHON": sys.executable}
    with ExitStack() as stack:
        addresses = {f"{name}-1:9093": prepared(stack, folder / name, authority) for name in ("paris", "berlin")}
        return type_steps(home, addresses, environment)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        text = block(newcomer(Path(made), ROOT / "dist" / WHEEL))
    DOCUMENT.write_text(with_block(DOCUMENT.read_text("utf-8"), "newcomer", text), "utf-8")
