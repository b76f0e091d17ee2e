"""A connection's login by Kerberos: a ticket of the client's, then one for the broker, both in the background."""

from __future__ import annotations

import importlib
import random
import sys
from typing import Any

import pytest

from mirror.backoff import Backoff
from mirror.cluster.auth.gssapi import Gssapi
from mirror.cluster.auth.kerberos_settings import KerberosSettings
from mirror.errors import AuthenticationFailed, ConfigError, ConnectionFailed, KafkaError
from mirror.runtime.network.kerberos import KerberosLogin, Ticket, load_gssapi
from mirror.runtime.network.oauth import TokenKeeper
from tests.runtime.test_tokens import Held


def login() -> tuple[KerberosLogin, Held]:
    held, rng = Held(), random.Random(1)
    keeper = TokenKeeper[Ticket](held.unused, held, Backoff(100, 1_000, rng))
    return KerberosLogin(KerberosSettings("kafka"), keeper, held, rng, "paris"), held


def test_each_authentication_has_a_ticket_for_the_broker() -> None:
    of_connection, held = login()
    assert of_connection.begin(0) is None
    held.give(Ticket(None, "me@HERE"), 3_600_000)
    for number in (2, 3):
        assert of_connection.begin(number) is None
        assert of_connection.begin(number) is None
        assert len(held.futures) == number
        made = Gssapi.__new__(Gssapi)
        held.futures[-1].set_result(made)
        assert of_connection.begin(number) is made


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (AuthenticationFailed("no such service"), AuthenticationFailed, "no such service"),
        (MemoryError("secret"), ConnectionFailed, "Kerberos: no ticket for kafka@paris: MemoryError"),
    ],
)
def test_no_ticket_for_the_broker(error: BaseException, kind: type[KafkaError], reason: str) -> None:
    of_connection, held = login()
    of_connection.begin(0)
    held.give(Ticket(None, "me@HERE"), 3_600_000)
    of_connection.begin(1)
    held.fail(error)
    with pytest.raises(kind, match=f"^{reason}$"):
        of_connection.begin(2)
    assert of_connection.begin(3) is None  # another attempt
    assert len(held.futures) == 3


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(
        ConfigError, match=r"'gssapi': .* -m pip install 'dist/kafka_spark_mirror-.*\[gssapi\]', on every host"
    ):
        load_gssapi()


def test_without_mit_s_library_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(f"{name}: libgssapi_krb5.so.2: cannot open shared object file")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ConfigError, match=r"the library of Kerberos cannot be loaded \(Debian: apt-get install libgss"):
        load_gssapi()
