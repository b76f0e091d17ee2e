"""A provider of tokens on Spark's executors: their hosts have its module, or say that they do not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.e2e.broker_side import Side
from tests.e2e.site import Site, flow
from tests.e2e.standalone import Standalone
from tests.e2e.test_on_a_cluster import CHECKOUT, Flow, cores, executors

__all__ = ["executors"]
pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

PROVIDER: Final = '''
import base64, json, time

def token(request):
    """A token without a signature, as Kafka's own handler for tests takes it."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": request.scope, "iat": now - 1, "exp": now + 600})
    encoded = (base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts)
    return ".".join(encoded) + ".", 600_000
'''
LISTENER: Final = "TOKENS"
LOGIN: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
OPTIONS: Final = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.provider": "provider_of_the_driver:token",
    "sasl.oauthbearer.scope": "mirror",
}


@pytest.fixture(scope="module")
def wants_tokens() -> Iterator[Cluster]:
    own = f"listener.name.{LISTENER.lower()}"
    properties = {f"{own}.sasl.enabled.mechanisms": "OAUTHBEARER", f"{own}.oauthbearer.sasl.jaas.config": LOGIN}
    with Cluster(properties=properties, listeners={LISTENER: "SASL_PLAINTEXT"}, heap=jvm.BROKER) as cluster:
        yield cluster


def test_executors_say_that_they_lack_the_module_and_copy_once_they_have_it(
    site: Site,
    source: Side,
    wants_tokens: Cluster,
    executors: Standalone,
    unique: Callable[[str], str],
) -> None:
    (site.folder / "provider_of_the_driver.py").write_text(PROVIDER)
    one = Flow(source, Side(wants_tokens.bootstrap_servers), unique("tokens"), 2, site, executors)
    one.source.create(one.topic, one.partitions)
    one.source.fill(one.topic, [b"1", b"2"])
    addresses = {"a": source.address, "b": wants_tokens.bootstrap(LISTENER)}
    site.write(addresses, {"f": flow("a", "b", [one.topic])}, b=OPTIONS)

    refused = site.finish(one.start("run", "refused", cores(2)))
    assert refused.status == 3
    shown = (site.folder / "refused" / "summary.json").read_text()
    (error,) = {each["error"] for each in json.loads(shown)["flows"][0]["partitions"] if each["error"]}
    assert "cannot be loaded on host " in error
    assert "there is no module 'provider_of_the_driver'; the search path is PYTHONPATH, the installed" in error

    has_it = {"spark.executorEnv.PYTHONPATH": f"{CHECKOUT}{os.pathsep}{site.folder}"}
    done = site.finish(one.start("run", "done", cores(2), has_it))
    assert (done.status, done.errors) == (0, []), done.err
    one.agree([2, 0])
