"""Which version of each API to speak with one broker (KIP-35)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mirror.errors import UnsupportedVersion
from mirror.wire.api import Api
from mirror.wire.messages.session import ApiVersionsResponse

OLDEST_BROKER: Final = "Apache Kafka 3.0"
"""The release whose versions are the lowest in :class:`mirror.wire.api.Api`."""


@dataclass(frozen=True, slots=True)
class BrokerVersions:
    """What one broker speaks: ``ranges`` as API key -> (lowest, highest), ``features`` as name -> finalized level."""

    ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, response: ApiVersionsResponse) -> BrokerVersions:
        """From a broker's answer."""
        return cls(
            {api.api_key: (api.min_version, api.max_version) for api in response.api_keys},
            {feature.name: feature.max_version_level for feature in response.finalized_features},
        )

    def pick(self, api: Api) -> int:
        """The newest version both sides speak. Raises UnsupportedVersion, which names both ranges."""
        spec = api.value
        if spec.key not in self.ranges:
            msg = f"the broker does not offer {api.label}; brokers of {OLDEST_BROKER} and newer do"
            raise UnsupportedVersion(msg)
        low, high = self.ranges[spec.key]
        version = min(high, spec.high)
        if version < max(low, spec.low):
            msg = (
                f"the broker speaks {api.label} versions {low} to {high}, this client {spec.low} to {spec.high}: "
                f"use brokers of {OLDEST_BROKER} or newer"
            )
            raise UnsupportedVersion(msg)
        return version
