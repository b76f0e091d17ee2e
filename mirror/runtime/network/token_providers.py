"""Loads the function of ``sasl.oauthbearer.token.provider``."""

from __future__ import annotations

import importlib
import socket
import sys
from typing import Final, cast

from mirror.cluster.auth.oauth_settings import PROVIDER, SHIPPED, TokenProvider
from mirror.errors import ConfigError, Problem
from mirror.extras import install

_CURRENT_FOLDER: Final = ""
_FAILED: Final = f"cannot be loaded on host {socket.gethostname()}"
"""The host may be one of Spark's executors."""


def load_provider(name: str) -> TokenProvider:
    """Import the function of this name: one of SHIPPED, or ``package.module:function``. Raises ConfigError.

    The current folder is searched last, as for transforms.
    """
    if _CURRENT_FOLDER not in sys.path:
        sys.path.append(_CURRENT_FOLDER)
    module, _, function = name.partition(":")
    try:
        if name in SHIPPED:
            importlib.import_module(SHIPPED[name])
            module, function = f"mirror.runtime.network.{name}_tokens", "token"
        found: object = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        if name in SHIPPED:
            raise _problem(name, f"needs {error.name!r}: {install(name)}, on every host") from None
        where = "the search path is PYTHONPATH, the installed packages and the current folder"
        raise _problem(name, f"{_FAILED}: there is no module {error.name!r}; {where}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a module's own code may raise anything, with a secret in its text
        raise _problem(name, f"{_FAILED}: {type(error).__name__}") from None
    if not callable(found):
        raise _problem(name, "must be a function that takes a TokenRequest")
    return cast("TokenProvider", found)


def _problem(name: str, why: str) -> ConfigError:
    return ConfigError([Problem("", PROVIDER, repr(name), why)])
