"""Which flows of the other direction bring consumer groups back, and whose copies a flow brings them back for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig


def opposite_of(config: MirrorConfig, flow: FlowConfig) -> FlowConfig | None:
    """Return the flow that brings back what groups commit on the copies of ``flow``; None if none does.

    Of those that bring groups over in the other direction, it is the first one with the naming and the origin of
    ``flow``, or else the first one.
    """
    ends = (flow.target, flow.source)
    found = [one for one in config.flows.values() if (one.source, one.target) == ends and one.groups.sync]
    alike = (one for one in found if (one.naming, one.only_local) == (flow.naming, flow.only_local))
    return next(alike, found[0] if found else None)


def brought_back_by(config: MirrorConfig, flow: FlowConfig) -> list[FlowConfig]:
    """Return the flows for whose copies ``flow`` brings positions back."""
    return [other for other in config.flows.values() if opposite_of(config, other) is flow]
