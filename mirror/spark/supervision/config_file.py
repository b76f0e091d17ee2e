"""The configuration file of a stream while it runs: what an edit changes for each flow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from mirror.config.key_names import dotted
from mirror.config.load import SECRETS_DIR, load_valid_flows
from mirror.config.models import MirrorConfig
from mirror.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.config.models import FlowConfig


class LoadedFlow(NamedTuple):
    """A flow with the configuration that it is of."""

    config: MirrorConfig
    flow: FlowConfig

    def changed_keys(self, other: LoadedFlow) -> list[str]:
        """Return the keys that differ, of the flow and of its clusters; none if both flows are the same."""
        fields = type(self.flow).model_fields.items()
        before, after = (one.flow.model_dump() for one in (self, other))
        keys = [str(field.alias) for name, field in fields if before[name] != after[name]]
        for name in dict.fromkeys(one for each in (self, other) for one in (each.flow.source, each.flow.target)):
            was, wanted = (_options(each.config, name) for each in (self, other))
            changed = sorted(key for key in was.keys() | wanted.keys() if was.get(key) != wanted.get(key))
            keys += [dotted(("clusters", name, key)) for key in changed]
        return keys


def _options(config: MirrorConfig, cluster: str) -> Mapping[str, object]:
    return config.clusters[cluster].options if cluster in config.clusters else {}


def merged(config: MirrorConfig, others: Iterable[LoadedFlow]) -> MirrorConfig:
    """Return ``config`` with the flows of ``others`` whose clusters it has: flows are checked with one another."""
    flows = {one.flow.name: one.flow for one in others if {one.flow.source, one.flow.target} <= config.clusters.keys()}
    return MirrorConfig(clusters=config.clusters, flows={**flows, **config.flows}, secret_files=config.secret_files)


class Edit(NamedTuple):
    """What the file says after an edit."""

    config: MirrorConfig | None
    """The valid flows; None if the file is wrong as a whole."""
    wrong: Mapping[str, str]
    """Why a flow is wrong, by its name."""
    error: str = ""
    """Why the file is wrong as a whole, one line for each problem."""


class ConfigFile:
    """The file, with the files of secrets that belong to it."""

    def __init__(self, path: Path, secrets_dir: Path | None) -> None:
        """To be created before the file is loaded for the first time: later edits are noticed."""
        self._path: Final = path
        self._secrets_dir: Final = secrets_dir or (Path(found) if (found := os.environ.get(SECRETS_DIR)) else None)
        self._secret_files: Iterable[Path] = ()
        self._loaded = self._seen = self._state()

    def watch(self, secret_files: Iterable[Path]) -> None:
        """Take a change of one of these files for an edit, too."""
        self._secret_files = tuple(secret_files)
        self._seen = self._state()
        self._loaded = (self._loaded[0], *self._seen[1:])

    def poll(self) -> Edit | None:
        """Return what the file says now, if it was edited, and has not changed since the last call.

        So a file that is just being written is not read, nor one missed that an editor is about to replace.
        """
        before, self._seen = self._seen, self._state()
        if self._seen == self._loaded or self._seen != before:
            return None
        self._loaded = self._seen
        try:
            text = self._path.read_bytes()
            config, wrong = load_valid_flows(self._path, secrets_dir=self._secrets_dir, text=text)
        except ConfigError as error:
            return Edit(None, {}, str(error))
        except OSError as error:
            return Edit(None, {}, f"{self._path}: cannot be read: {error.strerror}")
        self._loaded = (text, *self._loaded[1:])
        self.watch(config.secret_files)
        return Edit(config, {name: "; ".join(str(error).splitlines()) for name, error in wrong.items()})

    def _state(self) -> tuple[object, ...]:
        """Return what changes with the file's text and with the files of secrets."""
        try:
            text: object = self._path.read_bytes()
        except OSError as error:
            text = error.errno
        folder = () if self._secrets_dir is None else (self._secrets_dir,)
        return (text, *(_state_of(path) for path in (*folder, *self._secret_files) if path != self._path))


def _state_of(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
