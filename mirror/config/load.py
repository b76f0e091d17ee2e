"""Loads a configuration file with its overrides and checks all of it before a run starts."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import ValidationError

from mirror.cluster.auth.oauth_settings import ASSERTION, URL, is_file, path_of
from mirror.config import clients, cycles, flow_rules, schema, switch_rules
from mirror.config.clients import Checked
from mirror.config.key_names import KeyPath, dotted, nearest
from mirror.config.layers import EnvironmentSource, FileSource, Layers, OverrideSource, SecretsSource, has_secret
from mirror.config.models import ClusterConfig, FlowConfig, MirrorConfig
from mirror.config.own_tables import FLOW_NAME, OwnTable
from mirror.config.problems import Sources, model_problems, plain
from mirror.config.switch_settings import SwitchConfig
from mirror.errors import ConfigError, Problem

T = TypeVar("T", bound=OwnTable)

SECRETS_DIR: Final = "MIRROR_SECRETS_DIR"

_PLACEHOLDERS: Final[Mapping[str, Any]] = {"source": "", "target": "", "topics": ["x"]}
"""Values for wrong keys that have no default, so that the other keys can be checked together."""
_GRAPH_KEYS: Final = frozenset({"source", "target", "topics", "topics-exclude", "naming", "names"})
"""The keys that determine which flows feed each other."""

_NAMES: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    "clusters": (re.compile(r"[A-Za-z0-9._-]+"), "a cluster's name is made of letters, digits, '.', '_' and '-'"),
    "flows": (re.compile(r"[A-Za-z0-9_-]+"), "a flow's name is made of letters, digits, '_' and '-'"),
    "switches": (re.compile(r"[A-Za-z0-9_-]+"), "a switch's name is made of letters, digits, '_' and '-'"),
}
_OPTIONAL: Final = frozenset({"switches"})


def load(
    path: Path,
    *,
    environ: Mapping[str, str] | None = None,
    secrets_dir: Path | None = None,
    text: bytes | None = None,
    why_not_loaded: Callable[[str], str | None] | None = None,
) -> MirrorConfig:
    """Load the configuration in ``path`` (TOML); ``environ`` overrides ``secrets_dir``, which overrides the file.

    ``environ`` is the process's own environment by default, and ``secrets_dir`` the value of its
    ``MIRROR_SECRETS_DIR``. ``text`` replaces the file's content if it is not None. ``why_not_loaded`` returns why a
    transform cannot be loaded, or None; without it only the transform's name is checked.

    Raises ConfigError with all problems, or with the one that kept a layer from being read.
    """
    read = _read(path, environ, secrets_dir, text, why_not_loaded)
    if read.problems:
        raise ConfigError(read.problems)
    return read.config()


def load_valid_flows(
    path: Path, *, environ: Mapping[str, str] | None = None, secrets_dir: Path | None = None, text: bytes | None = None
) -> tuple[MirrorConfig, dict[str, ConfigError]]:
    """Load a configuration without the flows that are wrong, and return it with the error of each of these.

    The parameters are those of :func:`load`. Raises ConfigError if anything is wrong that is not of one flow.
    """
    read = _read(path, environ, secrets_dir, text, None)
    by_flow: dict[str, list[Problem]] = {}
    for problem in read.problems:
        names = [name for name in read.flows if f"{problem.key}.".startswith(f"{dotted(('flows', name))}.")]
        if not names:
            raise ConfigError(read.problems)
        by_flow.setdefault(names[0], []).append(problem)
    return read.config(without=by_flow), {name: ConfigError(problems) for name, problems in by_flow.items()}


class _Read(NamedTuple):
    """What was read of a configuration. With a problem, flows have placeholders instead of wrong values."""

    clusters: Mapping[str, Mapping[str, Any]]
    flows: Mapping[str, FlowConfig]
    switches: Mapping[str, SwitchConfig]
    problems: Sequence[Problem]
    secret_files: Sequence[Path]

    def config(self, *, without: Collection[str] = ()) -> MirrorConfig:
        """Return the configuration without these flows. Nothing else of it may have a problem."""
        clusters = {name: ClusterConfig(name=name, options=dict(table)) for name, table in self.clusters.items()}
        flows = {name: flow for name, flow in self.flows.items() if name not in without}
        switches = {name: one for name, one in self.switches.items() if not {*one.flows, *one.back} & {*without}}
        config = MirrorConfig(clusters=clusters, flows=flows, switches=switches)
        return config.model_copy(update={"secret_files": (*self.secret_files, *_key_files(config))})


def _read(
    path: Path,
    environ: Mapping[str, str] | None,
    secrets_dir: Path | None,
    text: bytes | None,
    why_not_loaded: Callable[[str], str | None] | None,
) -> _Read:
    environ = os.environ if environ is None else environ
    if secrets_dir is None and environ.get(SECRETS_DIR):
        secrets_dir = Path(environ[SECRETS_DIR])
    file = FileSource(path, text)
    overrides: list[OverrideSource] = [EnvironmentSource(environ, file.toml_data)]
    secrets = None if secrets_dir is None else SecretsSource(secrets_dir, file.toml_data)
    overrides += [] if secrets is None else [secrets]
    data = Layers(sources=(*overrides, file)).tables()
    origins = {path: origin for source in reversed(overrides) for path, origin in source.origins.items()}
    problems = [problem for source in overrides for problem in source.problems]
    if secrets is not None:
        problems += secrets.unused_files(set(_files_named(data)))
    known = Sources(str(path), origins)
    flows, problems = _checked(data, known, problems, why_not_loaded or (lambda _: None))
    switches = {name: _switch(name, table, flows, known, problems) for name, table in schema.tables(data, "switches")}
    files = [path] if has_secret(file.toml_data) else []
    files += [] if secrets is None else secrets.secret_files
    return _Read(dict(schema.tables(data, "clusters")), flows, switches, problems, files)


def _key_files(config: MirrorConfig) -> Iterator[Path]:
    for cluster in config.clusters.values():
        options = cluster.client_options()
        for key in ("ssl.keystore.location", f"{ASSERTION}.private.key.file", f"{ASSERTION}.file"):
            if location := options.get(key):
                yield Path(str(location))
        if is_file(url := str(options.get(URL, ""))):
            yield Path(path_of(url))


def _files_named(data: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the files of certificates, keys and tokens of clusters, which may be in the secrets folder."""
    for _, table in schema.tables(data, "clusters"):
        for key, value in clients.revealed(table).items():
            if not isinstance(value, str) or "\0" in value:
                continue
            if key.endswith((".location", ".file")):
                yield Path(value).resolve()
            elif key == URL and is_file(value):
                yield Path(path_of(value)).resolve()


def _checked(
    data: Mapping[str, Any], sources: Sources, problems: list[Problem], why_not_loaded: Callable[[str], str | None]
) -> tuple[dict[str, FlowConfig], list[Problem]]:
    tables = dict(schema.tables(data, "clusters"))
    clusters = {name: clients.check_cluster(("clusters", name), table, sources) for name, table in tables.items()}
    problems = [*problems, *_section_problems(data, sources)]
    problems += itertools.chain.from_iterable(cluster.problems for cluster in clusters.values())
    flows, of_graph = [], []
    for name, table in schema.tables(data, "flows"):
        flow, doubtful = _flow(name, table, sources, problems)
        problems += _end_problems(name, table, clusters, sources)
        checked = {client: _client(name, table, client, clusters, sources) for client in schema.CLIENT_KEYS}
        problems += itertools.chain.from_iterable(client.problems for client in checked.values())
        target, producer = clusters.get(flow.target), checked["producer"]
        problems += flow_rules.problems(flow, sources, doubtful=doubtful, target=target, producer=producer)
        if flow.transform and (reason := why_not_loaded(flow.transform)):
            problems.append(sources.problem(("flows", name, "transform"), flow.transform, reason))
        flows.append(flow)
        if doubtful.isdisjoint(_GRAPH_KEYS) and {flow.source, flow.target} <= clusters.keys():
            of_graph.append(flow)
    problems += _graph_problems(of_graph, tables, sources)
    return {flow.name: flow for flow in flows}, problems


def _flow(
    name: str, table: Mapping[str, Any], sources: Sources, problems: list[Problem]
) -> tuple[FlowConfig, frozenset[str]]:
    """Return the flow of a table and its doubtful keys; add the table's problems to ``problems``.

    The flow has defaults, or placeholders, instead of wrong values.
    """
    path = ("flows", name)
    sections = {
        key: _table(model, (*path, key), table[key], sources, problems)[0]
        for key, model in FlowConfig.sections().items()
        if isinstance(table.get(key), Mapping)
    }
    return _table(FlowConfig, path, {**table, **sections}, sources, problems, {FLOW_NAME: name}, _PLACEHOLDERS)


def _switch(
    name: str,
    table: Mapping[str, Any],
    flows: Mapping[str, FlowConfig],
    sources: Sources,
    problems: list[Problem],
) -> SwitchConfig:
    """Return the switch of a table; add the table's problems to ``problems``."""
    path, more = ("switches", name), {FLOW_NAME: name}
    switch, doubtful = _table(SwitchConfig, path, table, sources, problems, more, {"flows": ["x"]})
    problems += switch_rules.problems(switch, flows, sources, doubtful)
    return switch


def _table(
    model: type[T],
    path: KeyPath,
    table: Mapping[str, Any],
    sources: Sources,
    problems: list[Problem],
    more: Mapping[str, Any] = MappingProxyType({}),
    placeholders: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[T, frozenset[str]]:
    """Return the ``model`` of the table at ``path``, with ``more`` values, and its doubtful keys."""
    allowed = model.allowed()
    keys = {key: value for key, value in table.items() if key in allowed}
    unknown = [key for key in table if key not in allowed]
    problems += (sources.unknown((*path, key), table[key], allowed) for key in unknown)
    doubtful = {near for key in unknown if (near := nearest(key, allowed)) and near not in table}
    try:
        return model.model_validate({**keys, **more}, by_alias=True, by_name=False), frozenset(doubtful)
    except ValidationError as error:
        found = model_problems(error, path, sources, allowed)
        problems += found
        wrong = {str(detail["loc"][0]) for detail in error.errors(include_url=False)}
    usable = {key: value for key, value in keys.items() if key not in wrong}
    usable |= {client: _readable(keys[client]) for client in schema.CLIENT_KEYS if client in wrong}
    valid = model.model_validate({**placeholders, **usable, **more}, by_alias=True, by_name=False)
    return valid, frozenset(doubtful | wrong)


def _readable(table: object) -> dict[str, Any]:
    """Return the items of a client's table whose type such a table can have."""
    items = table.items() if isinstance(table, Mapping) else ()
    return {key: value for key, value in items if isinstance(value, str | int)}


def _section_problems(data: Mapping[str, Any], sources: Sources) -> Iterator[Problem]:
    unknown = [key for key in data if key not in _NAMES]
    yield from (sources.unknown((key,), data[key], _NAMES) for key in unknown)
    misspelt = {nearest(key, _NAMES) for key in unknown}
    for section, (pattern, allowed) in _NAMES.items():
        entries = data.get(section, {})
        if section not in data and (section in misspelt or section in _OPTIONAL):
            continue
        if not isinstance(entries, Mapping):
            yield plain(sources.file, section, f"must be tables: [{section}.NAME]")
        elif not entries:
            yield plain(sources.file, section, f"there is none; add a table [{section}.NAME]")
        else:
            for name, table in entries.items():
                if not pattern.fullmatch(name):
                    yield plain(sources.file, f'{section}."{name}"', allowed)
                if not isinstance(table, Mapping):
                    yield plain(sources.file, f"{section}.{name}", f"must be a table: [{section}.{name}]")


def _end_problems(
    flow: str, table: Mapping[str, Any], clusters: Mapping[str, object], sources: Sources
) -> Iterator[Problem]:
    names = ", ".join(clusters) or "none"
    for end in ("source", "target"):
        name = table.get(end)
        if isinstance(name, str) and name not in clusters:
            yield sources.problem(("flows", flow, end), name, f"no such cluster; there are: {names}")


def _client(
    flow: str, table: Mapping[str, Any], client: str, clusters: Mapping[str, Checked], sources: Sources
) -> Checked:
    options, name = table.get(client, {}), table.get("source" if client == "consumer" else "target")
    if not isinstance(options, Mapping):  # The model reports this.
        options = {}
    cluster = clusters.get(name) if isinstance(name, str) else None
    return clients.check_client(client, ("flows", flow, client), options, cluster, sources)


def _graph_problems(
    flows: list[FlowConfig], clusters: Mapping[str, Mapping[str, Any]], sources: Sources
) -> Iterator[Problem]:
    identity = cycles.cluster_identities({name: clients.addresses(table) for name, table in clusters.items()})
    distinct = []
    for flow in flows:
        if identity[flow.source] == identity[flow.target] and not (flow.is_within_one_cluster and flow.names):
            both = f"{flow.source} -> {flow.target}"
            more = ", or give the copies other names (names)" if flow.is_within_one_cluster else ""
            allowed = f"both ends are one cluster; choose another target{more}"
            yield Problem(sources.file, f"flows.{flow.name}", both, allowed)
        else:
            distinct.append(flow)
    yield from _heartbeat_problems(distinct, identity, sources)
    for flow, reader in cycles.unregistered_writers(distinct, identity):
        allowed = f"must be true: flow {reader.name} copies from {flow.target} what was produced there only"
        yield sources.problem(("flows", flow.name, "register-producers"), value=False, allowed=allowed)
    for group, reason in cycles.feedback_groups(distinct, identity):
        edges = ", ".join(f"{flow.name}: {flow.source} -> {flow.target}" for flow in group)
        yield Problem(sources.file, "flows", edges, reason)


def _heartbeat_problems(flows: list[FlowConfig], identity: Mapping[str, str], sources: Sources) -> Iterator[Problem]:
    """Yield the flows that would copy the same heartbeats into the same topic as another flow."""
    first: dict[tuple[str, str], str] = {}
    for flow in flows:
        if not flow.mirrormaker.heartbeats:
            continue
        other = first.setdefault((flow.source, identity[flow.target]), flow.name)
        if other != flow.name:
            allowed = f"flow {other} copies the heartbeats from {flow.source} to {flow.target}: remove the key here"
            yield sources.problem(("flows", flow.name, "mirrormaker", "heartbeats"), value=True, allowed=allowed)
