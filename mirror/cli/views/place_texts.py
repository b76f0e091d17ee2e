"""The texts for the places of translated offsets, in the tables of ``mirror offsets`` and ``mirror groups``."""

from __future__ import annotations

from typing import Final

from mirror.relay.offsets.index import Place

MEANINGS: Final = {
    Place.RECORD: "the same record",
    Place.NEXT: "no record there: the next one",
    Place.END: "the end of what is copied",
    Place.NOT_COPIED: "not copied yet: the end of what is copied",
    Place.UNKNOWN: "unknown",
}
