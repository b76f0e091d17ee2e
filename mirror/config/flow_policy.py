"""What a flow's settings are for its copy: the policy of the tasks. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.config.value_checks import text_of
from mirror.relay.model.policy import CopyPolicy

if TYPE_CHECKING:
    from mirror.config.flow_settings import FlowSettings


def copy_policy(flow: FlowSettings, tasks: int = 1) -> CopyPolicy:
    """Return the policy of one of ``tasks`` (at least 1) that share the flow's ``max-bytes-per-second``."""
    limit = flow.max_bytes_per_second
    return CopyPolicy(
        exactly_once=flow.exactly_once,
        exactly_once_by=flow.exactly_once_by,
        commit_interval_ms=flow.commit_interval_ms,
        commit_min_interval_ms=flow.commit_min_interval_ms,
        on_gap=flow.on_gap,
        on_too_large=flow.on_too_large,
        on_bad_timestamp=flow.on_bad_timestamp,
        on_no_key=flow.on_no_key,
        on_corrupt=flow.on_corrupt,
        aside=flow.aside,
        start_over=flow.start_over,
        on_target_loss=flow.on_target_loss,
        on_target_recreated=flow.on_target_recreated,
        max_bytes_per_second=max(1, limit // tasks) if limit else 0,
        compression=None if flow.compression == "source" else flow.compression,
        headers=tuple((name, text_of(value).encode()) for name, value in flow.headers.items()),
        transform=flow.transform,
        masking=flow.test_copy.masking(),
        wind_up_ms=flow.shutdown_timeout_ms // 4,
        index_interval_ms=flow.groups.interval_ms // 4 if flow.follows_groups else 0,
        only_local=flow.only_local,
        origin_from=flow.origin_from,
        registers_producers=flow.registers_producers,
    )
