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
    """What one broker speaks: ``ranges`` as API key -> (lowest, highest), ``features`` as name -> finalized level.

    ``features_epoch`` counts the changes of the cluster's features (KIP-584): of two brokers' tellings the higher is
    the newer; -1 where the broker knows none yet.
    """

    ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    features_epoch: int = -1

    @classmethod
    def of(cls, response: ApiVersionsResponse) -> BrokerVersions:
        """From a broker's answer."""
        epoch = response.finalized_features_epoch
        told = response.finalized_features if epoch >= 0 else ()
        return cls(
            {api.api_key: (api.min_version, api.max_version) for api in response.api_keys},
            {feature.name: feature.max_version_level for feature in told},
            epoch,
        )

    def finalized(self, name: str) -> int:
        """The level of the cluster's feature ``name`` (``transaction.version``), 0 where nothing is known of it."""
        return self.features.get(name, 0)

    def pick(self, api: Api, at_most: int | None = None) -> int:
        """The newest version both sides speak, and not above ``at_most`` where that is given.

        Raises UnsupportedVersion, which names both ranges.
        """
        spec = api.spec
        if spec.key not in self.ranges:
            msg = f"the broker does not offer {api.label}; brokers of {OLDEST_BROKER} and newer do"
            raise UnsupportedVersion(msg)
        low, high = self.ranges[spec.key]
        limit = spec.high if at_most is None else min(spec.high, at_most)
        version = min(high, limit)
        if version < max(low, spec.low):
            msg = (
                f"the broker speaks {api.label} versions {low} to {high}, this client {spec.low} to {limit}: "
                f"use brokers of {OLDEST_BROKER} or newer"
            )
            raise UnsupportedVersion(msg)
        return version
