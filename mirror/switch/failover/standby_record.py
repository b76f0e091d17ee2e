"""The record of a failover is on the target alone: the source may be dead, and then it answers nothing for ever."""

from __future__ import annotations

from mirror.switch.record import SwitchRecord


class NoTopic:
    """Stands for the topic of the record on the source (:class:`mirror.switch.record_store.RecordTopic`)."""

    def begin(self) -> bool:
        return False

    def read(self) -> SwitchRecord | None:
        return None

    def write(self, record: SwitchRecord) -> None:
        del record
