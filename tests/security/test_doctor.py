"""``mirror doctor`` at real listeners: what it finds has the words of the error that a run ends with."""

from __future__ import annotations

import pytest

from mirror import causes
from mirror.causes import Cause
from mirror.client import Admin
from mirror.doctor.cluster_checks import check_cluster
from mirror.doctor.cluster_facts import observe
from mirror.doctor.facts import ClusterFacts
from mirror.doctor.findings import Severity
from mirror.errors import AuthenticationFailed
from mirror.observation import Side
from tests.security.conftest import Secured

pytestmark = pytest.mark.brokers

_STEP_MS = 20_000


def observed(options: dict[str, object]) -> ClusterFacts:
    with Admin(options) as admin:
        return observe(Side("paris", admin, _STEP_MS), options, (), _STEP_MS)


@pytest.mark.parametrize(
    ("listener", "mechanism", "password", "cause"),
    [
        ("EXPIRED", "", "", causes.EXPIRED),
        ("STRANGER", "", "", causes.OTHER_HOST),
        ("MUTUAL", "", "", causes.CLIENT_CERTIFICATE),
        ("SASLTLS", "SCRAM-SHA-256", "wrong", causes.LOGIN),
    ],
)
def test_what_is_wrong_has_the_words_of_a_run(
    secured: Secured, listener: str, mechanism: str, password: str, cause: Cause
) -> None:
    login = secured.password(mechanism, password) if mechanism else {}
    options = secured.options(listener) | login
    (one,) = check_cluster(observed(options), 0.0)
    assert (one.severity, one.why) == (Severity.ERROR, cause.effect)
    with Admin(options) as admin, pytest.raises(AuthenticationFailed) as run:
        admin.describe_cluster()
    for part in (one.what, one.remedy):
        assert part in str(run.value)


def test_a_listener_that_is_well_shows_its_certificate_and_clock(secured: Secured) -> None:
    options = secured.options("SASLTLS", ssl_keystore_location=str(secured.client.path)) | secured.password("PLAIN")
    facts = observed(options)
    (certificate,) = (one.certificate for one in facts.brokers.values())
    assert certificate is not None
    assert certificate.protocol == "TLSv1.3"
    assert facts.own_expires_s.value is not None
    days = (facts.own_expires_s.value - certificate.expires_s) / 86_400
    assert abs(days) < 2, "both are of the same authority"
    found = [one.what for one in check_cluster(facts, certificate.expires_s - 10 * 86_400)]
    assert any("expires in 10 days" in line for line in found)
    assert any("the clock of its controller is this host's" in line for line in found), found
