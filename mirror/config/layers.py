"""The layers of a configuration, merged by pydantic-settings: environment over secrets directory over file."""

from __future__ import annotations

import stat
import tomllib
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pydantic import SecretStr
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from mirror.config import key_names, schema
from mirror.config.not_toml import not_text, not_toml
from mirror.config.problems import plain
from mirror.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from importlib.resources.abc import Traversable
    from pathlib import Path

    from mirror.config.key_names import KeyPath

_MAX_SECRET_BYTES: Final = 1024 * 1024
_MAX_FILE_BYTES: Final = 8 * 1024 * 1024
"""Ten thousand flows take 1 MiB."""
_MAX_NAMES_COMPARED: Final = 20_000
"""The nearest name is searched among at most so many, at about 50 us each."""


class Layers(BaseSettings):
    """The merged tables, unchecked, with every secret in a SecretStr: ``Layers(sources=(highest priority, ...))``."""

    model_config = SettingsConfigDict(extra="allow", hide_input_in_errors=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic-settings' signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - ours know the names in the file
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - no .env files
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - ours know the names in the file
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the caller's sources instead of those of pydantic-settings."""
        sources: tuple[PydanticBaseSettingsSource, ...] = init_settings()["sources"]
        return sources

    def tables(self) -> dict[str, Any]:
        """Return the merged tables, by section."""
        return self.model_extra or {}


class FileSource(TomlConfigSettingsSource):
    """The TOML file. Raises ConfigError if it cannot be read."""

    def __init__(self, path: Path, text: bytes | None = None) -> None:
        """``text`` replaces the file's content if it is not None."""
        self._path = path
        self._text = text
        try:
            # Not path.exists() and path.is_file(): from Python 3.14 on they hide why a path cannot be read.
            if text is None and not stat.S_ISREG(path.stat().st_mode):
                self._refuse("not a file; give the path of a TOML file")
        except (FileNotFoundError, NotADirectoryError):
            self._refuse("no such file; give the configuration's path with --config or MIRROR_CONFIG")
        except OSError as error:
            self._refuse(f"cannot be read: {error.strerror}")
        super().__init__(Layers, path.absolute())  # The parent class would expand a relative folder called ~.

    def _read_files(
        self, *files: Any, **options: Any
    ) -> dict[str, Any]:  # options depend on pydantic-settings' release
        return super()._read_files(*files, **options) if self._text is None else self._read_file(self._path)

    def _read_file(self, file_path: Path | Traversable) -> dict[str, Any]:
        try:
            data = self._text
            if data is None:
                with file_path.open("rb") as file:
                    data = file.read(_MAX_FILE_BYTES + 1)
            if len(data) > _MAX_FILE_BYTES:
                self._refuse(f"larger than {_MAX_FILE_BYTES >> 20} MiB: is this a configuration?")
        except OSError as error:
            self._refuse(f"cannot be read: {error.strerror}")
        try:
            text = data.decode("utf-8-sig").replace("\r\n", "\n")  # Some editors begin a file with a byte order mark.
        except UnicodeDecodeError as error:
            self._refuse(not_text(data, error))
        try:
            tables: dict[str, Any] = _sealed((), tomllib.loads(text))
        except ValueError as error:  # TOMLDecodeError, or an integer of thousands of digits
            self._refuse(not_toml(text, error))
        except RecursionError:
            self._refuse("not a configuration: nested too deeply")
        return tables

    def _refuse(self, text: str) -> NoReturn:
        raise ConfigError([plain(str(self._path), "", text)]) from None


class OverrideSource(InitSettingsSource):
    """Values from outside the file, each under its variable's name; a variable that matches no key is a problem."""

    def __init__(self, values: Mapping[str, str], data: Mapping[str, object]) -> None:
        """``values`` by variable name; ``data`` are the file's tables, whose names the variables must match."""
        self.origins: dict[KeyPath, str] = {}
        self.problems: list[Problem] = []
        self._data = data
        self._variables = key_names.Variables(schema.overridable(data))
        nested: dict[str, Any] = {}
        for name, text in values.items():
            path = self._path(name)
            if path is not None:
                self.origins[path] = self.describe(name)
                _put(nested, path, self._sealed(path, schema.from_text(path, text)))
        super().__init__(Layers, nested)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({sorted(self.origins.values())})"

    def describe(self, name: str) -> str:
        """Return how to name the variable ``name`` in a message."""
        raise NotImplementedError

    def _sealed(self, path: KeyPath, value: Any) -> Any:
        return _sealed(path, value)

    def _path(self, name: str) -> KeyPath | None:
        match self._variables.paths(name):
            case ():
                self._refuse(name, self._unknown(name.upper()))
            case (path,) if path in self.origins:
                self._refuse(name, f"the same key as {self.origins[path]}; give it once")
            case (path,):
                return path
            case several:
                keys = " and ".join(key_names.dotted(path) for path in several)
                self._refuse(name, f"ambiguous: it may mean {keys}; rename one of them in the file")
        return None

    def _refuse(self, name: str, text: str) -> None:
        self.problems.append(plain(self.describe(name), "", text))

    def spell(self, variable: str) -> str:
        """Return how this source spells the environment variable ``variable``."""
        raise NotImplementedError

    def _did_you_mean(self, name: str, valid: Iterable[str]) -> str:
        # The common prefix would make any two names similar.
        short = {other.removeprefix(key_names.PREFIX): other for other in valid}
        near = key_names.nearest(name.upper().removeprefix(key_names.PREFIX), short)
        return f'; did you mean "{self.spell(short[near])}"?' if near else ""

    def _unknown(self, name: str) -> str:
        for section in ("clusters", "flows"):
            if not name.startswith(key_names.variable((section, ""))):
                continue
            entries = [entry for entry, _ in schema.tables(self._data, section)]
            inside = [entry for entry in entries if name.startswith(key_names.variable((section, entry, "")))]
            if inside:
                entry = max(inside, key=len)
                begin = key_names.variable((section, entry, ""))
                hint = self._did_you_mean(name, (other for other in self._variables.names() if other.startswith(begin)))
                return f"no such key in {key_names.dotted((section, entry))}{hint}"
            return f"matches none of the file's {section}; there are: {', '.join(entries) or 'none'}"
        return self._no_key(name)

    def _no_key(self, name: str) -> str:
        clusters, flows = key_names.variable(("clusters", "")), key_names.variable(("flows", ""))
        names = self._variables.names()
        # A comparison with a million names would take minutes.
        hint = self._did_you_mean(name, (*key_names.OWN, *(names if len(names) <= _MAX_NAMES_COMPARED else ())))
        return f"unknown; an override begins with {self.spell(clusters)} or {self.spell(flows)}{hint}"


class EnvironmentSource(OverrideSource):
    """Environment variables such as ``MIRROR_CLUSTERS__PARIS__BOOTSTRAP_SERVERS``."""

    def __init__(self, environ: Mapping[str, str], data: Mapping[str, object]) -> None:
        super().__init__({name: text for name, text in environ.items() if _is_override(name)}, data)

    def describe(self, name: str) -> str:
        """Return ``environment variable`` and its name."""
        return f"environment variable {name}"

    def spell(self, variable: str) -> str:
        """Return ``variable``."""
        return variable


class SecretsSource(OverrideSource):
    """A folder with one file per value, such as ``clusters__paris__sasl_password``.

    Any other file is a problem, unless the configuration names it (:meth:`unused_files`): its name is most likely
    misspelt, and the value that it should override would be used silently. Folders, configurations (``.toml``) and
    hidden files are ignored.
    """

    def __init__(self, directory: Path, data: Mapping[str, object]) -> None:
        """Raises ConfigError if ``directory`` or one of its files cannot be read."""
        files = _visible(directory)
        self._files = {key_names.PREFIX + file.name: file for file in files}
        values = {name: _secret(file) for name, file in self._files.items() if _is_of_a_section(file)}
        others = (file for file in files if not _is_of_a_section(file) and file.suffix != ".toml")
        self.secret_files: list[Path] = [self._files[name] for name in values]
        self._others = [file for file in others if not _is_folder(file)]
        super().__init__(values, data)

    def unused_files(self, named: Collection[Path]) -> list[Problem]:
        """Return a problem for each file that holds no value and is not ``named`` (resolved) by the configuration."""
        unused = [file for file in self._others if file.resolve() not in named]
        return [plain(self.describe(key_names.PREFIX + file.name), "", self._no_key(file.name)) for file in unused]

    def describe(self, name: str) -> str:
        """Return ``secrets file`` and its path."""
        return f"secrets file {self._files[name]}"

    def spell(self, variable: str) -> str:
        """Return ``variable`` as a file's name."""
        return variable.removeprefix(key_names.PREFIX).lower()

    def _no_key(self, name: str) -> str:
        clusters, flows = (self.spell(key_names.variable((section, ""))) for section in ("clusters", "flows"))
        names = self._variables.names()
        hint = self._did_you_mean(name, names if len(names) <= _MAX_NAMES_COMPARED else ())
        return f"does not hold a key's value: such a file is named {clusters}NAME__KEY or {flows}NAME__KEY{hint}"

    def _sealed(self, path: KeyPath, value: Any) -> Any:
        """Seal all headers: their names are the user's own and do not show which is secret, but their folder does."""
        if path[-1] == "headers" and isinstance(value, dict):
            return {name: SecretStr(text) if isinstance(text, str) else text for name, text in value.items()}
        return super()._sealed(path, value)


def _is_override(name: str) -> bool:
    """Return whether a variable is meant to override a key; ``MIRROR_DEBUG``, for example, is not.

    A variable with the prefix that has no other meaning counts, so that a misspelt one is not silently ignored.
    """
    upper = name.upper()
    if upper.startswith(key_names.PREFIX) and key_names.LEVEL in upper:
        return True
    if key_names.is_own(name) or key_names.is_service_link(name):
        return False
    return name.startswith(key_names.PREFIX) or upper.startswith(("MIRROR_CLUSTERS", "MIRROR_FLOWS"))


def _visible(directory: Path) -> list[Path]:
    """Return the folder's files without hidden ones, which Kubernetes (``..data``) and editors create."""
    try:
        return [file for file in sorted(directory.iterdir()) if not file.name.startswith(".")]
    except OSError as error:
        text = f"cannot be read: {error.strerror}; give another with --secrets-dir or MIRROR_SECRETS_DIR"
        raise ConfigError([plain(f"secrets directory {directory}", "", text)]) from error


def _is_of_a_section(file: Path) -> bool:
    return file.name.lower().startswith(("clusters__", "flows__"))


def _is_folder(file: Path) -> bool:
    try:
        return file.is_dir()
    except OSError:
        return False


def _secret(file: Path) -> str:
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):  # Reading a FIFO or a device might never end.
            raise ConfigError([plain(f"secrets file {file}", "", "not a file; it must hold one value")])
        if status.st_size > _MAX_SECRET_BYTES:
            raise ConfigError([plain(f"secrets file {file}", "", "larger than 1 MiB; it must hold one value")])
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError([plain(f"secrets file {file}", "", f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError:
        raise ConfigError([plain(f"secrets file {file}", "", "not UTF-8 text")]) from None


def has_secret(value: object) -> bool:
    """Return whether a table has a sealed text."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, SecretStr) or any(has_secret(item) for item in inner)


def _put(tables: dict[str, Any], path: KeyPath, value: object) -> None:
    for part in path[:-1]:
        tables = tables.setdefault(part, {})
    tables[path[-1]] = value


def _sealed(path: KeyPath, value: Any) -> Any:
    """Return ``value`` with every text under a secret's name in a SecretStr, before it can be logged or shown."""
    if isinstance(value, dict):
        return {key: _sealed((*path, key), item) for key, item in value.items()}
    if isinstance(value, list):
        return [_sealed(path, item) for item in value]
    return SecretStr(value) if isinstance(value, str) and schema.is_secret(path) else value
