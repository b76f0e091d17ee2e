"""ApiVersions and GetTelemetrySubscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.wire.messages.session import ApiVersion, ApiVersionsResponse, FinalizedFeature
from mirror.wire.messages.telemetry import GetTelemetrySubscriptionsResponse
from tests.fakes import errors
from tests.fakes.control import ServerCall

if TYPE_CHECKING:
    from tests.fakes.cluster import FakeCluster

_REFUSES_WITH_RANGE = 3


def api_versions(cluster: FakeCluster, call: ServerCall) -> ApiVersionsResponse:
    """A version that the broker does not know is answered in version 0, with error 35.

    From Apache Kafka 2.4 on it comes with the versions of ApiVersions itself (KIP-511), before with none.
    """
    known = cluster.supports(call.api, call.version)
    keys = tuple(ApiVersion(api.value.key, low, high) for api, (low, high) in cluster.versions.items())
    features = tuple(FinalizedFeature(name, level, level) for name, level in cluster.features.items())
    epoch = len(features) - 1 + cluster.feature_changes  # -1, "not known", where there are none
    if known:
        return ApiVersionsResponse(call.action.code("ApiVersions"), keys, 0, features, epoch)
    call.version = 0
    own = tuple(key for key in keys if key.api_key == call.api.value.key and key.max_version >= _REFUSES_WITH_RANGE)
    return ApiVersionsResponse(errors.UNSUPPORTED_VERSION, own)


def get_telemetry_subscriptions(cluster: FakeCluster, call: ServerCall) -> GetTelemetrySubscriptionsResponse:
    """A client without an id is given one (KIP-714)."""
    code = call.action.code("GetTelemetrySubscriptions")
    return GetTelemetrySubscriptionsResponse(code, call.body.client_instance_id or cluster.new_id())
