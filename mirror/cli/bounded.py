"""Ends a command that has not ended within its ``--timeout``."""

from __future__ import annotations

import functools
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from mirror.errors import FlowError

if TYPE_CHECKING:
    from collections.abc import Callable


def bounded(command: Callable[..., None]) -> Callable[..., None]:
    """Return ``command`` bounded by its own parameter ``timeout``, in seconds; with ``watch`` only its calls are.

    It runs in a thread, which is left behind at the timeout: the process ends then. So every command of the table has
    the bound, whatever it waits for, and needs no code for it.
    """

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        timeout_s = arguments.get("timeout")
        if timeout_s is None or arguments.get("watch"):
            return command(**arguments)
        ended: Future[None] = Future()
        threading.Thread(
            target=_run, args=(command, arguments, ended), name=f"mirror-{command.__name__}", daemon=True
        ).start()
        try:
            return ended.result(timeout_s)
        except TimeoutError:
            if ended.done():
                raise
            line = f"the command has not ended within --timeout {timeout_s:g}; repeat it with more seconds"
            raise FlowError(line) from None

    return run


def _run(command: Callable[..., None], arguments: dict[str, Any], ended: Future[None]) -> None:
    try:
        command(**arguments)
    except BaseException as error:  # noqa: BLE001 - the main thread raises it
        ended.set_exception(error)
    else:
        ended.set_result(None)
