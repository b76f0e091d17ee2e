"""What the proxy makes of answers (:data:`tests.faults.proxy.Change`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from tests.faults.proxy import Change


def refused(code: ErrorCode, *path: str, named: str = "error_code") -> Change:
    """Makes every item at the end of ``path`` (kio's fields, each a list) say ``code``; no path: the whole answer."""

    def change(body: Any, path: tuple[str, ...]) -> Any:
        if not path:
            return replace(body, **{named: code})
        items = tuple(change(item, path[1:]) for item in getattr(body, path[0]))
        return replace(body, **{path[0]: items})

    return lambda _, body: change(body, path)
