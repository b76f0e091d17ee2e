"""How a flow wants its ranges copied: plain values, made from its configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

COMMIT_BYTES: Final = 64 * 1024 * 1024
"""A transaction is committed once it holds this many bytes, however young it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPolicy:
    """What the keys of a flow say, checked by ``config``; times in ms.

    ``exactly_once`` or at least once. A commit comes as soon as a partition is caught up, ``commit_interval_ms`` after
    the first record at the latest, ``commit_min_interval_ms`` after the one before at the earliest. ``on_gap`` is
    "fail" or "skip"; so are ``on_too_large`` and ``on_no_key``, each for a single record that the target refuses;
    ``on_bad_timestamp`` may be "clamp", too. ``start_over`` allows a copy to begin again where its progress is lost,
    or its target's log is not what was copied into.
    ``max_bytes_per_second`` is this task's share of the flow's limit (0: none). ``compression`` is a codec's name, or
    None for the source's own; ``headers`` are added to every record; ``transform`` names a function
    ("package.module:function", "" for none).

    Of a stream: ``until_ms`` (ms since 1970) is when its epoch ends: what is not committed by then is dropped, and
    copied in the next one. ``run`` and ``epoch`` say which epoch of which run this is, so that it ends when it is told
    to (``relay.progress.control``; "": nobody tells), ``wind_up_ms`` how long that may take. Progress older than
    ``renew_ms`` (0: of any age will do) is committed anew, before the target forgets it. For ``lease_ms`` after its end
    an epoch goes on copying, exactly once, until the next one shuts it out.
    """

    exactly_once: bool = True
    commit_interval_ms: int = 1_000
    commit_min_interval_ms: int = 20
    on_gap: str = "fail"
    on_too_large: str = "fail"
    on_bad_timestamp: str = "fail"
    on_no_key: str = "fail"
    start_over: bool = False
    max_bytes_per_second: int = 0
    compression: str | None = None
    headers: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)  # one may hold a secret
    transform: str = ""
    until_ms: int | None = None
    run: str = ""
    epoch: int = 0
    wind_up_ms: int = 5_000
    renew_ms: int = 0
    lease_ms: int = 0

    @property
    def rewrites(self) -> bool:
        """Whether every record is to be changed, so that no batch can be passed on as it is."""
        return self.compression is not None or bool(self.headers) or bool(self.transform)


@dataclass(slots=True, kw_only=True)
class CopyTimeouts:
    """The times that a copy keeps to, in ms."""

    delivery_timeout_ms: int
    request_timeout_ms: int
    stall_ms: int
    """How long the source may return nothing before its state is looked up."""
    commit_interval_ms: int
    commit_min_interval_ms: int
