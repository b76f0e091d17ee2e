"""Placeholders of templates, which some tool should have filled in before MirrorMaker 2 reads the file."""

from __future__ import annotations

import re
from typing import Final

_TEMPLATE: Final = re.compile(
    r"""
    \$\{ (?P<shell>[A-Za-z_]\w*) (:?[-=?+][^}]*)? \}   # envsubst, Docker Compose: ${NAME}, ${NAME:-default}
    | (?<![\w$]) \$[A-Z_][A-Z0-9_]+ (?![A-Za-z0-9_])   # $NAME; but $ConnectionString is a user of Event Hubs
    | \{\{ [^\n]*? \}\} | \{% [^\n]*? %\}              # Helm, Jinja (Ansible)
    | <% [^\n]*? %> | \#\{ [\w.]+ \}\#                  # ERB, Azure Pipelines
    """,
    re.VERBOSE,
)
_MAX_MARK: Final = 40


def template(text: str) -> str | None:
    """Return the first placeholder of a template in ``text``, without a default value; None if there is none."""
    found = _TEMPLATE.search(text)
    if found is None:
        return None
    mark = f"${{{found['shell']}}}" if found["shell"] else found[0]
    return mark if len(mark) <= _MAX_MARK else mark[: _MAX_MARK - 3] + "..."
