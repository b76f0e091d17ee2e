"""An archive of the classes that Spark's JVM loads (JEP 350), so that the runs after the first one start sooner.

The second run of a host has its JVM write the archive when it exits, which takes about 25 s of CPU, once: where nothing
of a first run is kept, as in a container, none is ever written. Later runs map it instead of loading some 10,000
classes from jars. A JVM that does not fit the archive (another version, other jars, another class path) runs without
it: it compares all of these itself. The archive is code, so it is used only if no other user can write to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OLDEST_JAVA_WITH_ARCHIVES: Final = 13
"""JEP 350. An older one ends at once at an option that it does not know."""
WRITE_OPTION: Final = "-XX:ArchiveClassesAtExit="
_SUFFIX: Final = ".jsa"
_MARK: Final = ".seen"
"""Of the file that a first run leaves."""
_KEPT: Final = 2
"""Archives that stay in the folder, each about 160 MB: those of other versions may still be in use."""
_OTHERS_MAY_WRITE: Final = 0o022
_QUIET: Final = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""Without an archive that fits, go on without a word."""
_OWN_OPTIONS: Final = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit", "SharedClassListFile")
"""Options of a user with which ours would be in conflict."""
_VARIABLES: Final = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")


class ClassArchive:
    """The archive for one Java and one installation of Spark. The file need not exist."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self._part: Final = path.with_name(f"{path.stem}-{os.getpid()}.part")
        self._mark: Final = path.with_suffix(_MARK)

    @classmethod
    def of(cls, java: Path, find_folder: Callable[[], Path]) -> Self | None:
        """Return the archive for ``java`` and the installed PySpark, or None if there is no place for one.

        Its folder is created. It has to be this user's alone; a user without a home has none (RuntimeError).
        """
        try:
            key = _key(java)
            folder = find_folder()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.stat()
        except (OSError, RuntimeError):
            return None
        if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_MAY_WRITE or not os.access(folder, os.W_OK):
            return None
        return cls(folder / f"spark-{key}{_SUFFIX}")

    def options(self, environ: Mapping[str, str], *, write: bool) -> tuple[str, ...]:
        """Return the options of the JVM: use the archive, or else, with ``write`` and after a first run, make it.

        No options if the user has some about archives in ``environ``.
        """
        given = " ".join(environ.get(variable, "") for variable in _VARIABLES)
        if any(option in given for option in _OWN_OPTIONS):
            return ()
        if self._is_safe():
            return (f"-XX:SharedArchiveFile={self.path}", *_QUIET)
        return (f"{WRITE_OPTION}{self._part}", *_QUIET) if write and self._mark.exists() else ()

    def _is_safe(self) -> bool:
        try:
            status = self.path.lstat()
        except OSError:
            return False
        return status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_MAY_WRITE and self.path.is_file()

    def keep(self, *, whole: bool) -> None:
        """Keep what the JVM has written, if it has ended by itself (``whole``), and remove old archives."""
        with contextlib.suppress(OSError):
            self._mark.touch(mode=0o600)
        with contextlib.suppress(OSError):
            if whole and self._part.stat().st_size:
                self._part.chmod(0o600)
                self._part.replace(self.path)
                self._remove_others()
        with contextlib.suppress(OSError):
            self._part.unlink()

    def _remove_others(self) -> None:
        archives = sorted(self.path.parent.glob(f"spark-*{_SUFFIX}"), key=lambda path: path.stat().st_mtime)
        for path in archives[:-_KEPT]:
            path.with_suffix(_MARK).unlink(missing_ok=True)
            path.unlink()


def _key(java: Path) -> str:
    """Return what another Java or Spark at the same paths changes. Raises OSError."""
    spec = importlib.util.find_spec("pyspark")
    jars = Path(spec.origin or "").parent / "jars" if spec is not None else Path()
    whole = [str(os.getuid())]
    for path in (java.resolve(), jars):
        status = path.stat()
        whole += [str(path), str(status.st_size), str(status.st_mtime_ns)]
    return hashlib.sha256(shlex.join(whole).encode()).hexdigest()[:16]
