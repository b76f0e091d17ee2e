"""Select the version of each API to use with one broker (KIP-35)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mirror.causes import CONTROLLERS
from mirror.errors import UnsupportedVersion
from mirror.wire.api import Api
from mirror.wire.messages.session import ApiVersionsResponse

TARGET_SINCE: Final = "3.0"
"""The first release of Apache Kafka whose brokers can be a target."""
_VOTE: Final = 52
"""The key of an API of controllers."""
_TARGET_NEEDS: Final = ((Api.FIND_COORDINATOR, 4), (Api.OFFSET_FETCH, 8))
"""What shows that release: the lowest version of an API (KIP-699, KIP-709)."""


@dataclass(frozen=True, slots=True)
class BrokerVersions:
    """The API versions and the finalized features of one broker."""

    ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """API key -> (lowest version, highest version)."""
    features: Mapping[str, int] = field(default_factory=dict)
    """Name -> finalized level."""
    features_epoch: int = -1
    """Incremented with each change of the cluster's features (KIP-584): of two brokers' features, those with the higher
    epoch are newer. -1 if the broker has none yet."""

    @classmethod
    def of(cls, response: ApiVersionsResponse) -> BrokerVersions:
        """Return the versions in an ApiVersions response."""
        epoch = response.finalized_features_epoch
        finalized = response.finalized_features if epoch >= 0 else ()
        return cls(
            {api.api_key: (api.min_version, api.max_version) for api in response.api_keys},
            {feature.name: feature.max_version_level for feature in finalized},
            epoch,
        )

    def finalized(self, name: str) -> int:
        """Return the finalized level of the feature ``name`` (such as ``transaction.version``); 0 if it has none."""
        return self.features.get(name, 0)

    @property
    def reports_pending_offsets(self) -> bool:
        """Whether a group's offset in an open transaction can be asked for (KIP-447, from Apache Kafka 2.5)."""
        return self._offers(Api.OFFSET_FETCH, 7)

    @property
    def has_default_replicas(self) -> bool:
        """Whether a topic can be created with the cluster's default replication (KIP-464, from Apache Kafka 2.4)."""
        return self._offers(Api.CREATE_TOPICS, 4)

    @property
    def compares_epochs(self) -> bool:
        """Whether it says where a leader epoch of a log ends (KIP-101)."""
        return Api.OFFSET_FOR_LEADER_EPOCH.spec.key in self.ranges

    def _offers(self, api: Api, version: int) -> bool:
        return self.ranges.get(api.spec.key, (0, -1))[1] >= version

    @property
    def is_controller(self) -> bool:
        """Whether it is a KRaft controller: it offers Vote (KIP-595), and neither Metadata nor Produce."""
        return _VOTE in self.ranges and not (self._offers(Api.METADATA, 0) or self._offers(Api.PRODUCE, 0))

    def why_no_target(self) -> str | None:
        """Return why the broker cannot be a target, by the first API that is missing or too old; None if it can."""
        for api, least in _TARGET_NEEDS:
            _, high = self.ranges.get(api.spec.key, (0, -1))
            if high < least:
                if high < 0:
                    return f"it does not offer {api.label}, of which version {least} is needed"
                return f"it speaks {api.label} up to version {high}, and {least} is needed"
        return None

    def pick(self, api: Api, at_most: int | None = None) -> int:
        """Return the newest version that both sides support, not above ``at_most``.

        Raises UnsupportedVersion, whose text names both ranges.
        """
        spec = api.spec
        if spec.key not in self.ranges and self.is_controller:
            raise UnsupportedVersion(f"{CONTROLLERS.words} (it does not offer {api.label})")
        if spec.key not in self.ranges:
            msg = f"the broker does not offer {api.label}; brokers of Apache Kafka {spec.since} and newer do"
            raise UnsupportedVersion(msg)
        low, high = self.ranges[spec.key]
        limit = spec.high if at_most is None else min(spec.high, at_most)
        version = min(high, limit)
        if version < max(low, spec.low):
            msg = (
                f"the broker speaks {api.label} versions {low} to {high}, this client {spec.low} to {limit}: "
                f"use brokers of Apache Kafka {spec.since} or newer"
            )
            raise UnsupportedVersion(msg)
        return version
