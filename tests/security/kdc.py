"""A key distribution centre of MIT Kerberos on this machine, with a realm of its own in a folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from mirror.sandbox.ports import HOST, free_ports
from tests.polling import eventually

REALM: Final = "MIRROR.TEST"
_PATH: Final = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
_KRB5: Final = """
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
[realms]
    {realm} = {{
        kdc = {host}:{port}
    }}
"""
_KDC: Final = """
[kdcdefaults]
    kdc_listen = ""
    kdc_tcp_listen = {host}:{port}
[realms]
    {realm} = {{
        database_name = {folder}/principal
        key_stash_file = {folder}/stash
        acl_file = {folder}/acl
        max_renewable_life = 1d
    }}
[logging]
    kdc = FILE:{folder}/kdc.log
"""


class Kdc:
    """``config`` is the file for KRB5_CONFIG, by which the realm is found. Runs while the context manager is open."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None
        self.config = folder / "krb5.conf"
        values = {"realm": REALM, "host": HOST, "port": self._port, "folder": folder}
        self.config.write_text(_KRB5.format(**values))
        (folder / "kdc.conf").write_text(_KDC.format(**values))
        self.environment = os.environ | {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5CCNAME": str(folder / "no-cache"),
        }

    def __enter__(self) -> Self:
        self.run("kdb5_util", "create", "-s", "-P", "of-this-database")
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        self._process = subprocess.Popen([_tool("krb5kdc"), "-n"], env=self.environment)
        eventually(self._answers, what="the KDC listens")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None

    def _answers(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex((HOST, self._port)) == 0

    def keytab(self, name: str, principal: str, *options: str) -> Path:
        """Create a principal, with further ``options`` of addprinc, and write its key to a file."""
        path = self._folder / name
        self.run("kadmin.local", "addprinc", "-randkey", *options, principal)
        self.run("kadmin.local", "ktadd", "-k", str(path), principal)
        return path

    def replace_key(self, principal: str) -> None:
        """Give a principal another key than the one in its keytab."""
        self.run("kadmin.local", "change_password", "-randkey", principal)

    def run(self, tool: str, *arguments: str) -> None:
        """Run a tool of MIT's. Raises AssertionError with its output."""
        done = subprocess.run(
            [_tool(tool), *arguments], env=self.environment, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def logins(self, principal: str) -> int:
        """How often the principal's key was exchanged for a ticket."""
        lines = (self._folder / "kdc.log").read_text().splitlines()
        return sum("AS_REQ" in line and "ISSUE" in line and f"{principal}@{REALM}" in line for line in lines)


def _tool(name: str) -> str:
    found = shutil.which(name, path=_PATH)
    assert found is not None, f"{name} is not there: make kerberos (Debian: krb5-kdc, krb5-admin-server, krb5-user)"
    return found
