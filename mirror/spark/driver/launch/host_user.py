"""What Spark's JVM needs of the host and does not find by itself: a folder for temporary files, a home, a user's name.

Containers run under user ids without a passwd entry (OpenShift), for which Java's ``user.home`` is ``?``: Ivy refuses
that, and Hadoop's login has no name. Java writes to ``/tmp`` whatever ``TMPDIR`` says.
"""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mirror.errors import FlowError

if TYPE_CHECKING:
    from collections.abc import Mapping

USER_NAME: Final = "mirror"
"""The name in Hadoop's login of a user that has none."""
_JAVA_TEMPORARY: Final = "/tmp"  # noqa: S108 - Java's default on Linux


def temporary_folder() -> str:
    """Return a folder that can be written: ``TMPDIR``, or else a usual one. Raises FlowError if there is none."""
    try:
        return tempfile.gettempdir()
    except FileNotFoundError as error:
        raise FlowError(
            f"no folder for temporary files can be written ({error.strerror or error}): set TMPDIR to one"
        ) from error


def has_name() -> bool:
    """Whether this process's user has a passwd entry."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def java_options(environ: Mapping[str, str], *, named: bool, temporary: str) -> list[str]:
    """Return the options of the JVM for a user that is ``named`` or not, and a folder of :func:`temporary_folder`."""
    options = [] if temporary == _JAVA_TEMPORARY else [f"-Djava.io.tmpdir={temporary}"]
    if named:
        return options
    home = environ.get("HOME", "")
    usable = Path(home).is_absolute() and os.access(home, os.W_OK | os.X_OK)
    return [*options, f"-Duser.home={home if usable else temporary}"]
