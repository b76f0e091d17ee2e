"""Checks of one cluster: addresses, certificates, clock, releases of its brokers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from mirror import causes
from mirror.cluster.auth.oauth_settings import is_loopback
from mirror.doctor.facts import ClusterFacts
from mirror.doctor.findings import Finding, Severity, of_cause, of_error
from mirror.errors import is_outage

_DAY_S: Final = 86_400
SOON_DAYS: Final = 30
"""How long before a certificate expires it is a warning."""
MOST_SKEW_MS: Final = 2_000.0


def check_cluster(facts: ClusterFacts, unix_s: float) -> list[Finding]:
    """Return what is found at ``unix_s``, in seconds since 1970."""
    return [one for check in _CHECKS for one in check(facts, unix_s)]


def _bootstrap(facts: ClusterFacts, _: float) -> Iterator[Finding]:
    severity, cause = (Severity.WARNING, causes.SPARE_AWAY) if facts.answers else (Severity.ERROR, causes.AWAY)
    for contact in facts.bootstrap.values():
        if contact.error is not None:
            yield of_error(severity, _at(facts), contact.error, cause)
    if facts.answers and len(facts.bootstrap) == 1 and len(facts.brokers) > 1:
        what = f"bootstrap.servers names one of {len(facts.brokers)} brokers"
        yield of_cause(Severity.NOTE, _at(facts), what, causes.ONE_SERVER)


def _advertised(facts: ClusterFacts, _: float) -> Iterator[Finding]:
    answering = next((address for address, one in facts.bootstrap.items() if one.error is None), "")
    local = any(one.is_here for one in facts.bootstrap.values())
    reached = []
    for broker, contact in facts.brokers.items():
        if contact.error is not None:
            found = of_error(Severity.ERROR, _at(facts), contact.error, causes.UNANSWERED)
            advertised = found.why == causes.ADVERTISED.effect
            by = f" (an advertised listener: bootstrap server {answering} has named it)" if advertised else ""
            yield Finding(found.severity, found.where, found.what + by, found.why, found.remedy)
        elif is_loopback(_host(broker)) and not local:
            what = f"{broker} advertises a loopback address, and bootstrap server {answering} has none of this host's"
            yield of_cause(Severity.WARNING, _at(facts), what, causes.ADVERTISED)
        else:
            reached.append(contact.round_trip_ms)
    if reached:
        brokers = "1 broker answers" if len(reached) == 1 else f"{len(reached)} brokers answer"
        what = f"{brokers} at the advertised address, within {max(reached):.1f} ms"
        yield Finding(Severity.OK, _at(facts), what)


def _certificates(facts: ClusterFacts, unix_s: float) -> Iterator[Finding]:
    found = {at: one.certificate for at, one in facts.brokers.items() if one.certificate is not None}
    for at, certificate in found.items():
        yield from _expiring(facts, f"the certificate of {at}", certificate.expires_s, unix_s)
    if found:
        days = min(one.expires_s - unix_s for one in found.values()) / _DAY_S
        protocols = ", ".join(sorted({one.protocol for one in found.values()}))
        yield Finding(Severity.OK, _at(facts), f"{protocols}; the brokers' certificates are valid for {days:.0f} days")
    own = facts.own_expires_s
    if own.value is not None:
        yield from _expiring(facts, "the certificate of this client", own.value, unix_s)
    if own.error is not None:
        what = f"the dates of this client's certificate cannot be read: {own.error}"
        yield of_cause(Severity.NOTE, _at(facts), what, causes.EXPIRY_UNKNOWN)


def _expiring(facts: ClusterFacts, which: str, expires_s: float, unix_s: float) -> Iterator[Finding]:
    days = (expires_s - unix_s) / _DAY_S
    if days < 0:
        yield of_cause(Severity.ERROR, _at(facts), f"{which} has expired {-days:.0f} days ago", causes.EXPIRED)
    elif days < SOON_DAYS:
        yield of_cause(Severity.WARNING, _at(facts), f"{which} expires in {days:.0f} days", causes.EXPIRING)


def _clock(facts: ClusterFacts, _: float) -> Iterator[Finding]:
    clock = facts.clock.value
    if facts.clock.error is not None:
        what = f"the clocks could not be compared: {facts.clock.error}"
        yield of_cause(Severity.NOTE, _at(facts), what, causes.CLOCK_UNKNOWN)
    if clock is None:
        return
    ahead, wrong_by = clock.ahead_ms / 1000, clock.uncertainty_ms / 1000
    if abs(ahead) - wrong_by > MOST_SKEW_MS / 1000:
        side = "ahead of" if ahead > 0 else "behind"
        what = f"the clock of its controller is {abs(ahead):.1f} s {side} this host's"
        yield of_cause(Severity.WARNING, _at(facts), what, causes.CLOCK)
    else:
        what = f"the clock of its controller is this host's, within {abs(ahead) + wrong_by:.2f} s"
        yield Finding(Severity.OK, _at(facts), what)


def _unread(facts: ClusterFacts, _: float) -> Iterator[Finding]:
    for which, error in (("settings of the brokers", facts.settings.error), ("quotas", facts.quotas.error)):
        if error is not None and not is_outage(error):  # that of a broker is found at its address
            what = f"the {which} cannot be read: {error}"
            yield of_cause(Severity.NOTE, _at(facts), what, causes.SETTINGS_UNKNOWN)


def _releases(facts: ClusterFacts, _: float) -> Iterator[Finding]:
    ranges = {at: one.versions.ranges for at, one in facts.brokers.items() if one.versions is not None}
    first = next(iter(ranges), "")
    if other := [at for at, one in ranges.items() if one != ranges[first]]:
        what = f"{first} and {other[0]} offer different versions of the protocol"
        yield of_cause(Severity.NOTE, _at(facts), what, causes.RELEASES_OF_BROKERS)


_CHECKS: Final[tuple[Callable[[ClusterFacts, float], Iterator[Finding]], ...]] = (
    _bootstrap,
    _advertised,
    _certificates,
    _clock,
    _unread,
    _releases,
)


def _at(facts: ClusterFacts) -> str:
    return f"cluster {facts.name}"


def _host(address: str) -> str:
    """Return the host in ``host:port``, ``[host]:port``, or a text that ends with one of these."""
    return address.rpartition(" ")[2].rpartition(":")[0].strip("[]")
