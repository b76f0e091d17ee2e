"""Each check of a cluster finds what is wrong, and says so once it is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from mirror import causes
from mirror.doctor.cluster_checks import check_cluster
from mirror.doctor.cluster_facts import is_here
from mirror.doctor.facts import Certificate, Clock, ClusterFacts, Contact, Reading
from mirror.doctor.findings import Finding, Severity
from mirror.errors import AuthorizationFailed, ConnectionFailed, FlowError
from mirror.wire.versions import BrokerVersions

_NOW_S: Final = 1_800_000_000.0
_DAY_S: Final = 86_400
_REFUSED: Final = Contact(error=ConnectionFailed("bootstrap server at paris-2:9092: connection refused"))


def cluster(**changes: object) -> ClusterFacts:
    good = ClusterFacts(
        name="paris",
        bootstrap={"paris-1:9092": Contact(), "paris-2:9092": Contact()},
        brokers={f"broker {one} at paris-{one}:9092": Contact(round_trip_ms=float(one)) for one in (1, 2)},
        clock=Reading(Clock(3.0, 1.0)),
    )
    return replace(good, **changes)  # type: ignore[arg-type]


def found_in(facts: ClusterFacts) -> list[Finding]:
    return [one for one in check_cluster(facts, _NOW_S) if one.severity is not Severity.OK]


def test_nothing_is_found_where_all_is_well() -> None:
    assert [one.what for one in check_cluster(cluster(), _NOW_S)] == [
        "2 brokers answer at the advertised address, within 2.0 ms",
        "the clock of its controller is this host's, within 0.00 s",
    ]


@pytest.mark.parametrize(("others", "severity"), [(True, Severity.WARNING), (False, Severity.ERROR)])
def test_a_bootstrap_server_that_does_not_answer_is_an_error_if_none_does(*, others: bool, severity: Severity) -> None:
    servers = {"paris-1:9092": Contact()} if others else {}
    (one,) = found_in(cluster(bootstrap={**servers, "paris-2:9092": _REFUSED}, brokers={}))
    cause = causes.SPARE_AWAY if others else causes.AWAY
    assert (one.severity, one.why, one.where) == (severity, cause.effect, "cluster paris")


def test_an_address_that_only_a_broker_has_named_is_called_an_advertised_listener() -> None:
    words = f"broker 2 at inside:9092: the name was not found ({causes.ADVERTISED.words})"
    brokers = {**cluster().brokers, "broker 2 at inside:9092": Contact(error=ConnectionFailed(words))}
    one, others, _ = check_cluster(cluster(brokers=brokers), _NOW_S)
    assert others.what.startswith("2 brokers answer")
    assert one.what == (
        "broker 2 at inside:9092: the name was not found (an advertised listener: bootstrap server paris-1:9092 has"
        " named it)"
    )
    assert (one.severity, one.remedy) == (Severity.ERROR, causes.ADVERTISED.remedy)


@pytest.mark.parametrize("here", [False, True])
def test_an_advertised_loopback_address_may_be_another_broker_if_the_cluster_is_elsewhere(*, here: bool) -> None:
    bootstrap = {"paris-1:9092": Contact(is_here=here)}
    facts = cluster(bootstrap=bootstrap, brokers={"broker 1 at 127.0.0.1:9092": Contact()})
    found = [(one.severity, one.why) for one in found_in(facts)]
    assert found == ([] if here else [(Severity.WARNING, causes.ADVERTISED.effect)])


@pytest.mark.parametrize(
    ("host", "here"), [("localhost", True), ("127.0.1.1", True), ("192.0.2.1", False), ("nowhere.invalid", False)]
)
def test_a_host_is_this_one_if_it_has_one_of_its_addresses(host: str, *, here: bool) -> None:
    assert is_here((host, 9092)) is here


def test_a_certificate_of_this_client_that_cannot_be_read_is_a_note() -> None:
    unreadable = FlowError("reading the certificate: InvalidVersion: 3 is no version")
    (one,) = found_in(cluster(own_expires_s=Reading(None, unreadable)))
    assert (one.severity, one.remedy) == (Severity.NOTE, causes.EXPIRY_UNKNOWN.remedy)


@pytest.mark.parametrize(
    ("days", "severity", "what"),
    [
        (400, None, ""),
        (12, Severity.WARNING, "the certificate of broker 1 at paris-1:9092 expires in 12 days"),
        (-3, Severity.ERROR, "the certificate of broker 1 at paris-1:9092 has expired 3 days ago"),
    ],
)
def test_a_certificate_that_expires_soon_is_a_warning(days: int, severity: Severity | None, what: str) -> None:
    certificate = Certificate("TLSv1.3", _NOW_S + days * _DAY_S)
    facts = cluster(brokers={"broker 1 at paris-1:9092": Contact(certificate=certificate)})
    assert [(one.severity, one.what) for one in found_in(facts)] == ([] if severity is None else [(severity, what)])
    own = found_in(cluster(own_expires_s=Reading(_NOW_S + days * _DAY_S)))
    assert [one.severity for one in own] == ([] if severity is None else [severity])


@pytest.mark.parametrize(
    ("ahead_ms", "uncertainty_ms", "what"),
    [
        (7_200.0, 10.0, "the clock of its controller is 7.2 s ahead of this host's"),
        (-7_200.0, 10.0, "the clock of its controller is 7.2 s behind this host's"),
        (7_200.0, 6_000.0, ""),
    ],
)
def test_clocks_differ_only_if_that_is_certain(ahead_ms: float, uncertainty_ms: float, what: str) -> None:
    found = found_in(cluster(clock=Reading(Clock(ahead_ms, uncertainty_ms))))
    assert [(one.what, one.why) for one in found] == ([(what, causes.CLOCK.effect)] if what else [])


def test_clocks_that_cannot_be_compared_are_a_note() -> None:
    refused = AuthorizationFailed("reading the controller's clock: the permission Describe on the cluster is missing")
    (one,) = found_in(cluster(clock=Reading(None, refused)))
    assert (one.severity, one.remedy) == (Severity.NOTE, causes.CLOCK_UNKNOWN.remedy)


@pytest.mark.parametrize(("field", "nothing"), [("settings", {}), ("quotas", ())])
def test_what_may_not_be_read_is_a_note_and_what_a_broker_does_not_answer_is_none(field: str, nothing: object) -> None:
    refused, away = AuthorizationFailed("the permission DescribeConfigs is missing"), ConnectionFailed("refused")
    (one,) = found_in(cluster(**{field: Reading(nothing, refused)}))
    assert (one.severity, one.remedy) == (Severity.NOTE, causes.SETTINGS_UNKNOWN.remedy)
    assert found_in(cluster(**{field: Reading(nothing, away)})) == []


def test_one_bootstrap_server_of_several_brokers_is_a_note() -> None:
    (one,) = found_in(cluster(bootstrap={"paris-1:9092": Contact()}))
    assert (one.severity, one.what) == (Severity.NOTE, "bootstrap.servers names one of 2 brokers")


@pytest.mark.parametrize(("high", "differ"), [(13, False), (12, True)])
def test_brokers_of_several_releases_are_a_note(high: int, *, differ: bool) -> None:
    versions = [BrokerVersions({0: (0, 13)}), BrokerVersions({0: (0, high)})]
    brokers = {f"broker {n} at paris-{n}:9092": Contact(versions=one) for n, one in enumerate(versions)}
    assert [one.why for one in found_in(cluster(brokers=brokers))] == (
        [causes.RELEASES_OF_BROKERS.effect] if differ else []
    )
