"""Changes that the proxy makes to responses (:data:`tests.faults.proxy.Change`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from tests.faults.proxy import Change


def refused(code: ErrorCode, *path: str, named: str = "error_code") -> Change:
    """Set ``code`` in every item at the end of ``path`` (kio's list fields), or in the response if there is no path."""

    def change(body: Any, path: tuple[str, ...]) -> Any:
        if not path:
            return replace(body, **{named: code})
        items = tuple(change(item, path[1:]) for item in getattr(body, path[0]))
        return replace(body, **{path[0]: items})

    return lambda _, body: change(body, path)
