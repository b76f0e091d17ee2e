"""The settings of a switch: which flows' clients move to the target, and how the source is fenced."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from mirror.config.own_tables import FLOW_NAME, OwnTable
from mirror.config.patterns import Pattern
from mirror.wire.integers import INT32_MAX

_SECONDS: Final = "whole seconds from 1 to 2147483"
_COMMAND: Final = 'a list of at least one text, such as ["/etc/mirror/switch.sh"]'
_Command = Annotated[tuple[str, ...], Field(strict=False)]


class SwitchConfig(OwnTable):
    """One switch: it moves the clients of its flows' topics from their source cluster to their target cluster."""

    name: str = Field(validation_alias=FLOW_NAME, description="the switch's name")
    flows: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = Field(
        description="a list of at least one flow's name"
    )
    """the flows whose topics move, all from one cluster to one other, with `naming = "identity"` and exactly-once
    delivery
    """
    back: Annotated[tuple[str, ...], Field(strict=False)] = Field(default=(), description="a list of flows' names")
    """flows of the way back, from the target to the source, which have run before: they are held while the switch
    opens, and go on behind what was moved
    """
    fence: Literal["acl", "hook"] = Field(default="acl", description='"acl" or "hook"')
    """what ends the writes to the source's topics: `"acl"` denies WRITE on each of them, `"hook"` runs `hook-fence`"""
    deny_read: bool = Field(default=False, description="true or false")
    """with `fence = "acl"`: whether READ is denied on the groups that move, too, instead of having consumers stopped"""
    hook_fence: _Command = Field(default=(), description=_COMMAND)
    """with `fence = "hook"`: a command and its arguments, run without a shell. The JSON on its standard input has
    `"step"`: `"fence"` or, when the switch is rolled back, `"unfence"`
    """
    hook_switch: _Command = Field(default=(), description=_COMMAND)
    """a command that points clients at the target, once the switch is open; its JSON has `"step": "switch"`"""
    hook_seconds: int = Field(default=60, ge=1, le=INT32_MAX // 1000, description=_SECONDS)
    """how long a hook may take; then it is killed, and has failed"""
    clients: str = Field(default="", description="the host:port that applications connect to")
    """an address that applications connect to: the switch is done only once it leads to the target"""
    lag_records: int = Field(default=10_000, ge=0, le=INT32_MAX, description="a whole number from 0 to 2147483647")
    """how many records the target may still lack when producers are fenced: until then they go on"""
    quiet_seconds: int = Field(default=30, ge=1, le=INT32_MAX // 1000, description=_SECONDS)
    """how long the fenced topics must not have grown before the target opens"""
    deadline_seconds: int = Field(default=900, ge=1, le=INT32_MAX // 1000, description=_SECONDS)
    """how long producers may be fenced before the switch opens; then it is rolled back"""
    waive: Annotated[tuple[Pattern, ...], Field(strict=False)] = Field(
        default=(), description="a list of regular expressions"
    )
    """topics, groups and partitions that the flows do not cover and that may be left behind, as `mirror rehearse
    --waive`
    """
    append_tail: Annotated[tuple[Pattern, ...], Field(strict=False)] = Field(
        default=(), description="a list of regular expressions"
    )
    """topics whose tail `mirror failback --append` has the flow append to the target's topic, behind newer records,
    instead of exporting it; never compacted ones
    """
