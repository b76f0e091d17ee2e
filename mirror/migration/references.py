"""References to config providers, ``${provider:path:key}``, and how our configuration gets such a value instead."""

from __future__ import annotations

import re
from typing import Final

from mirror.config.key_names import PREFIX, KeyPath, variable
from mirror.migration.parsing.entries import Setting

REFERENCE: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
"""As ``ConfigTransformer`` finds them."""

_LOGIN: Final = re.compile(r'[\w.]+ required username="[^"]*" password="\$\{[^}]*\}";')


# Invariant: References to secrets are never resolved: the written configuration names the variable and the file to set
#   instead.
# Test: tests/migration/test_importing.py::test_references_are_neither_resolved_nor_lost
def references(setting: Setting) -> list[str]:
    """Return the references in a value, each once."""
    return list(dict.fromkeys(found[0] for found in REFERENCE.finditer(setting.value)))


def secrets_file(path: KeyPath) -> str:
    """Return the name of the file in a secrets folder that holds the value at ``path``."""
    return variable(path).removeprefix(PREFIX).lower()


def how_to_set(path: KeyPath, setting: Setting, *, as_list: bool = False) -> str:
    """Return how the value at ``path``, which contains references, gets into a configuration.

    There, a list is JSON.
    """
    found = references(setting)
    if _LOGIN.fullmatch(setting.value):  # It has no secret in it.
        return f"set {variable(path)}, or the secrets file {secrets_file(path)}, to {setting.value} with the password"
    whole = len(found) == 1 and setting.value.strip() == found[0]
    match = REFERENCE.fullmatch(found[0]) if whole else None
    if match and match[1] == "env" and not as_list:
        return f'set it with {variable(path)}="${match[3]}", or in the secrets file {secrets_file(path)}'
    what = "the value" if whole else "the whole value, with the references replaced,"
    what += " as a JSON list" if as_list else ""
    return f"set {variable(path)}, or the secrets file {secrets_file(path)}, to {what} of {', '.join(found)}"
