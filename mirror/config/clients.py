"""Checks Kafka's dotted keys of clusters and flows with the settings of the clients that will use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic import SecretStr

from mirror.cluster.auth.security import SECURITY_KEYS
from mirror.cluster.settings import ClusterSettings
from mirror.config.key_names import KeyPath, is_secret, nearest
from mirror.config.problems import HIDDEN, NOT_SET, without_credentials
from mirror.config.schema import CLIENT_KEYS, CLUSTER_KEYS, is_cluster_key
from mirror.consumer.settings import ConsumerSettings
from mirror.errors import ConfigError, Problem
from mirror.producer.settings import ProducerSettings

if TYPE_CHECKING:
    from mirror.cluster.keys import Key
    from mirror.cluster.settings import Address
    from mirror.config.problems import Sources

Table = Mapping[str, object]

_UNREADABLE: Final = object()
"""Stands in for the value of a doubtful key, so that its settings report a problem with it."""

_CONNECTION_KEYS: Final = frozenset({"bootstrap.servers", *SECURITY_KEYS})
"""Only a cluster's own table has these keys, and problems with them are reported there."""

_TRANSACTION_KEYS: Final = frozenset({"transactional.id", "transaction.timeout.ms"})

_PARSE: Final[Mapping[str, Callable[[Table], object]]] = {
    "producer": ProducerSettings.parse,
    "consumer": ConsumerSettings.parse,
}
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "str": (str,),
    "secret": (str,),
    "int": (int,),
    "bool": (bool,),
    "list": (str, list),
}
_TYPE_NAMES: Final = {
    "str": "text in quotes",
    "secret": "text in quotes",
    "int": "a whole number",
    "bool": "true or false",
    "list": "a list of texts, or one text with commas",
}


class Checked(NamedTuple):
    """A checked table of dotted keys."""

    problems: list[Problem]
    table: Table
    """The keys that exist, with their values."""
    doubtful: frozenset[str]
    """Keys whose value is wrong, or whose name an unknown key nearly has. No further problem is derived from them."""

    def to_parse(self) -> dict[str, object]:
        """Return the table as a client takes it, with a value that its settings cannot read for each doubtful key."""
        return {**dict.fromkeys(self.doubtful, _UNREADABLE), **revealed(self.table)}


def check_cluster(path: KeyPath, table: Table, sources: Sources) -> Checked:
    """Check one cluster's table."""
    checked = _check_keys(path, table, CLUSTER_KEYS, sources)
    try:
        ClusterSettings.parse(checked.to_parse())
    except ConfigError as error:
        more = [_located(problem, path, sources) for problem in error.problems if problem.key not in checked.doubtful]
        return checked._replace(problems=[*checked.problems, *more])
    return checked


def addresses(table: Table) -> frozenset[Address]:
    """Return the brokers in a cluster's table, with host names in lower case; none if the table is wrong."""
    try:
        settings = ClusterSettings.parse(revealed(table))
    except ConfigError:
        return frozenset()
    return frozenset((host.lower(), port) for host, port in settings.bootstrap)


def check_client(client: str, path: KeyPath, table: Table, cluster: Checked | None, sources: Sources) -> Checked:
    """Check a flow's ``producer`` or ``consumer`` table.

    It is also checked together with the table of its ``cluster``; None: the flow names no existing cluster.
    """
    misplaced = [key for key in table if is_cluster_key(key)]
    own = {key: value for key, value in table.items() if key not in misplaced}
    checked = _check_keys(path, own, CLIENT_KEYS[client], sources)
    problems = [
        *(sources.misplaced((*path, key), table[key], CLUSTER_KEYS) for key in misplaced),
        *checked.problems,
    ]
    if cluster is not None:
        # mirror.config.flow_rules checks the transaction keys, with the flow's other keys.
        both = {key: value for key, value in checked.to_parse().items() if key not in _TRANSACTION_KEYS}
        try:
            _PARSE[client]({**cluster.to_parse(), **both})
        except ConfigError as error:
            others = checked.doubtful | (cluster.table.keys() | cluster.doubtful | _CONNECTION_KEYS) - own.keys()
            problems += [_located(problem, path, sources) for problem in error.problems if problem.key not in others]
    return checked._replace(problems=problems)


def revealed(table: Table) -> dict[str, object]:
    """Return the table as a client takes it, with secrets."""
    return {key: value.get_secret_value() if isinstance(value, SecretStr) else value for key, value in table.items()}


def _check_keys(path: KeyPath, table: Table, keys: Mapping[str, Key], sources: Sources) -> Checked:
    problems = list(_key_problems(path, table, keys, sources))
    unknown = [name for name in table if name not in keys]
    intended = {near for name in unknown if (near := nearest(name, keys)) and near not in table}
    wrong = {name for name in table if name in keys and _wrong(keys[name], table[name])}
    return Checked(problems, {name: table[name] for name in table if name in keys}, frozenset(intended | wrong))


def _key_problems(path: KeyPath, table: Table, keys: Mapping[str, Key], sources: Sources) -> Iterator[Problem]:
    for name, value in table.items():
        here = (*path, name)
        key = keys.get(name)
        if key is None:
            yield sources.unknown(here, value, keys)
        elif reason := _wrong(key, value):
            yield sources.problem(here, SecretStr("") if key.secret else value, reason)


def _wrong(key: Key, value: object) -> str | None:
    """Return which values are valid, if ``value`` is not."""
    plain = value.get_secret_value() if isinstance(value, SecretStr) else value
    # Clients read "1000" as a number, as Java's do; in a typed file it is more likely a mistake.
    if not isinstance(plain, _TYPES[key.kind]) or (key.kind == "int" and isinstance(plain, bool)):
        return f"must be {_TYPE_NAMES[key.kind]}"
    try:
        key.read(plain)
    except ValueError as error:
        return str(error)
    return None


def _located(problem: Problem, path: KeyPath, sources: Sources) -> Problem:
    """Return a client's problem with its place in the file."""
    here = (*path, problem.key)
    located = sources.problem(here, None, problem.allowed)
    hidden = is_secret(here) and problem.value != NOT_SET
    value = HIDDEN if hidden else without_credentials(problem.value)
    return Problem(located.where, located.key, value, problem.allowed)
