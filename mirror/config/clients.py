"""Kafka's dotted keys of clusters and flows, checked by the clients that will use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic import SecretStr

from mirror.cluster.auth.security import SECURITY_KEYS
from mirror.cluster.settings import ClusterSettings
from mirror.config.naming import KeyPath, is_secret, nearest
from mirror.config.problems import HIDDEN, without_credentials
from mirror.config.schema import CLIENT_KEYS, CLUSTER_KEYS, of_cluster_only
from mirror.consumer.settings import ConsumerSettings
from mirror.errors import ConfigError, Problem
from mirror.producer.settings import ProducerSettings

if TYPE_CHECKING:
    from mirror.cluster.keys import Key
    from mirror.cluster.settings import Address
    from mirror.config.problems import Sources

Table = Mapping[str, object]

_UNREADABLE: Final = object()
"""Stands for the value of a doubtful key: no key's settings can read it."""

_OF_REACHING: Final = frozenset({"bootstrap.servers", *SECURITY_KEYS})
"""Only a cluster's own table has these, and its problems with them."""

OF_TRANSACTIONS: Final = frozenset({"transactional.id", "transaction.timeout.ms"})

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
    """A table of dotted keys, and what is wrong with it.

    ``table`` has the keys that exist. Of those that are ``doubtful`` the value is not known: it is wrong, or an unknown
    key nearly has their name. Nothing is concluded from these.
    """

    problems: list[Problem]
    table: Table
    doubtful: frozenset[str]

    def to_parse(self) -> dict[str, object]:
        """The table as a client takes it, so that its settings draw no conclusion from a doubtful key either."""
        return {**dict.fromkeys(self.doubtful, _UNREADABLE), **revealed(self.table)}


def check_cluster(path: KeyPath, table: Table, sources: Sources) -> Checked:
    """One cluster's table."""
    checked = _check_keys(path, table, CLUSTER_KEYS, sources)
    try:
        ClusterSettings.parse(checked.to_parse())
    except ConfigError as error:
        more = [_placed(problem, path, sources) for problem in error.problems if problem.key not in checked.doubtful]
        return checked._replace(problems=[*checked.problems, *more])
    return checked


def addresses(table: Table) -> frozenset[Address]:
    """The brokers that a cluster's table names, host names in lower case; none where the table is wrong."""
    try:
        settings = ClusterSettings.parse(revealed(table))
    except ConfigError:
        return frozenset()
    return frozenset((host.lower(), port) for host, port in settings.bootstrap)


def check_client(client: str, path: KeyPath, table: Table, cluster: Checked | None, sources: Sources) -> Checked:
    """A flow's ``producer`` or ``consumer`` table.

    Contradictions are looked for together with the table of the ``cluster`` that the client will talk to; None where
    that is not known.
    """
    astray = [key for key in table if of_cluster_only(key)]
    own = {key: value for key, value in table.items() if key not in astray}
    checked = _check_keys(path, own, CLIENT_KEYS[client], sources)
    problems = [
        *(sources.problem((*path, key), table[key], "belongs to the cluster's table") for key in astray),
        *checked.problems,
    ]
    if cluster is not None:
        # What belongs to transactions is the flow's: mirror.config.flow_rules looks at it.
        both = {key: value for key, value in checked.to_parse().items() if key not in OF_TRANSACTIONS}
        try:
            _PARSE[client]({**cluster.to_parse(), **both})
        except ConfigError as error:
            others = checked.doubtful | (cluster.table.keys() | cluster.doubtful | _OF_REACHING) - own.keys()
            problems += [_placed(each, path, sources) for each in error.problems if each.key not in others]
    return checked._replace(problems=problems)


def revealed(table: Table) -> dict[str, object]:
    """The table as a client takes it."""
    return {key: value.get_secret_value() if isinstance(value, SecretStr) else value for key, value in table.items()}


def _check_keys(path: KeyPath, table: Table, keys: Mapping[str, Key], sources: Sources) -> Checked:
    problems = list(_key_problems(path, table, keys, sources))
    unknown = [name for name in table if name not in keys]
    meant = {near for name in unknown if (near := nearest(name, keys)) and near not in table}
    wrong = {name for name in table if name in keys and _wrong(keys[name], table[name])}
    return Checked(problems, {name: table[name] for name in table if name in keys}, frozenset(meant | wrong))


def _key_problems(path: KeyPath, table: Table, keys: Mapping[str, Key], sources: Sources) -> Iterator[Problem]:
    for name, value in table.items():
        here = (*path, name)
        key = keys.get(name)
        if key is None:
            yield sources.unknown(here, value, keys)
        elif why := _wrong(key, value):
            yield sources.problem(here, SecretStr("") if key.secret else value, why)


def _wrong(key: Key, value: object) -> str | None:
    """What ``value`` must be instead."""
    plain = value.get_secret_value() if isinstance(value, SecretStr) else value
    # Clients take "1000" for a number, as Java's do; in a typed file it is more likely a slip.
    if not isinstance(plain, _TYPES[key.kind]) or (key.kind == "int" and isinstance(plain, bool)):
        return f"must be {_TYPE_NAMES[key.kind]}"
    try:
        key.read(plain)
    except ValueError as error:
        return str(error)
    return None


def _placed(problem: Problem, path: KeyPath, sources: Sources) -> Problem:
    """A client's problem at its place in the file."""
    here = (*path, problem.key)
    placed = sources.problem(here, None, problem.allowed)
    return Problem(
        placed.where, placed.key, HIDDEN if is_secret(here) else without_credentials(problem.value), problem.allowed
    )
