"""The tables of this project's own keys: what they share, and those inside a flow's table."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from mirror.config.patterns import Pattern, checked_names, matches, new_name, old_names
from mirror.wire.integers import INT32_MAX

Plain: TypeAlias = str | int | bool | list[str]
"""The value of one of Kafka's dotted keys that is no secret."""

FLOW_NAME: Final = "<name>"
"""The key by which a flow gets its table's name; no key inside a table can be spelled like it."""

PERIOD: Final = "whole milliseconds from 1000 to 2147483647"


class OwnTable(BaseModel):
    """A table of this project's own keys. The fields' descriptions say which values are valid."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        hide_input_in_errors=True,
        alias_generator=lambda name: name.replace("_", "-"),
        validate_by_name=True,
        validate_by_alias=True,
    )

    @classmethod
    def allowed(cls) -> dict[str, str]:
        """Return for each key, as spelled in a file, which values are valid."""
        return {
            str(field.alias): str(field.description)
            for field in cls.model_fields.values()
            if field.validation_alias != FLOW_NAME
        }


class MirrorMakerConfig(OwnTable):
    """What a flow writes for MirrorMaker 2's users."""

    checkpoints: bool = Field(default=False, description="true or false")
    """write checkpoints of consumer groups to the target; needs the table [`groups`](#consumer-groups), which selects
    them
    """
    heartbeats: bool = Field(default=False, description="true or false")
    """write a heartbeat to the source every second (`mirror run`: one per run), and copy the source's heartbeats to
    the target
    """


class GroupsConfig(OwnTable):
    """Which consumer groups a flow brings to the target."""

    include: Annotated[tuple[Pattern, ...], Field(strict=False)] = Field(
        default=(".*",), description="a list of regular expressions"
    )
    """groups whose whole name matches one of these regular expressions"""
    exclude: Annotated[tuple[Pattern, ...], Field(strict=False)] = Field(
        default=("console-consumer-.*", "connect-.*", "__.*"), description="a list of regular expressions"
    )
    """groups that are left out; the groups in which flows keep their progress always are"""
    names: Annotated[dict[str, str], AfterValidator(checked_names)] = Field(
        default_factory=dict, description='a table such as { "(.*)" = "eu.$1" }'
    )
    """groups that have another name on the target; see [Names](#names)"""
    sync: bool = Field(default=True, description="true or false")
    """commit the positions of these groups on the target; without the table it is `false`, and `mirror groups` shows
    what would be committed
    """
    interval_ms: int = Field(default=10_000, ge=1_000, le=INT32_MAX, description=PERIOD)
    """how often a stream does so, and sooner for groups that have committed, where it may read `__consumer_offsets` of
    the source; `mirror run` does it once, when its copies are complete
    """
    on_group_deleted: Literal["keep", "delete"] = Field(default="keep", description='"keep" or "delete"')
    """what happens to an offset on the target whose group has no such offset on the source any more: `"keep"`, or
    `"delete"` unless the group has moved to the target. The offset of a topic without an id (brokers before 2.8) is
    kept
    """

    def includes(self, group: str) -> bool:
        """Return whether the group is brought to the target, if it is not one of this program's own."""
        return self._selects(group) and self.name_taken_by(group) is None

    def target_group(self, group: str) -> str:
        """Return the name of the source's ``group`` on the target."""
        renamed = new_name(self.names, group) if self.names else None
        return group if renamed is None else renamed

    def source_group(self, name: str) -> str | None:
        """Return the source's group that is brought to the target's group ``name``, if the source has it, or None."""
        found = (group for group in (*old_names(self.names, name), name) if self._selects(group))
        return next((group for group in found if self.target_group(group) == name), None)

    def name_taken_by(self, group: str) -> str | None:
        """Return the other group, whether it exists or not, for which the name of ``group`` on the target is kept."""
        if not self.names or not self._selects(group):
            return None
        owner = self.source_group(self.target_group(group))
        return None if owner == group else owner

    def _selects(self, group: str) -> bool:
        return matches(self.include, group) and not matches(self.exclude, group)


class AclsConfig(OwnTable):
    """Which ACLs a flow brings to the target."""

    sync: bool = Field(default=True, description="true or false")
    """create the source's ACLs of the copied topics on the target; without the table it is `false`"""
    groups: bool = Field(default=False, description="true or false")
    """also the ACLs of those [consumer groups](#consumer-groups) whose positions the flow keeps; needs the table
    `groups`
    """
    write: bool = Field(default=False, description="true or false")
    """also ACLs that allow more than reading"""
