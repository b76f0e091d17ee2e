"""Kafka's dotted keys of clusters and flows, checked by the clients that will use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from mirror.cluster.settings import ClusterSettings
from mirror.config.naming import KeyPath, is_secret
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


def cluster_problems(path: KeyPath, table: Table, sources: Sources) -> list[Problem]:
    """What is wrong with one cluster's table."""
    if problems := list(_key_problems(path, table, CLUSTER_KEYS, sources)):
        return problems
    try:
        ClusterSettings.parse(revealed(table))
    except ConfigError as error:
        return [_placed(problem, path, sources) for problem in error.problems]
    return []


def addresses(table: Table) -> frozenset[Address]:
    """The brokers that a cluster's table names, host names in lower case; none where the table is wrong."""
    try:
        settings = ClusterSettings.parse(revealed(table))
    except ConfigError:
        return frozenset()
    return frozenset((host.lower(), port) for host, port in settings.bootstrap)


def client_problems(client: str, path: KeyPath, table: Table, cluster: Table | None, sources: Sources) -> list[Problem]:
    """What is wrong with a flow's ``producer`` or ``consumer`` table.

    Contradictions are looked for together with the table of the ``cluster`` that the client will talk to; None where
    that is unknown or wrong itself.
    """
    astray = [key for key in table if of_cluster_only(key)]
    own = {key: value for key, value in table.items() if key not in astray}
    problems = [
        *(sources.problem((*path, key), table[key], "belongs to the cluster's table") for key in astray),
        *_key_problems(path, own, CLIENT_KEYS[client], sources),
    ]
    if problems or cluster is None:
        return problems
    # What belongs to transactions is the flow's: mirror.config.together looks at it.
    own = {key: value for key, value in table.items() if key not in OF_TRANSACTIONS}
    try:
        _PARSE[client](revealed({**cluster, **own}))
    except ConfigError as error:
        return [_placed(problem, path, sources) for problem in error.problems]
    return []


def revealed(table: Table) -> dict[str, object]:
    """The table as a client takes it."""
    return {key: value.get_secret_value() if isinstance(value, SecretStr) else value for key, value in table.items()}


def _key_problems(path: KeyPath, table: Table, keys: Mapping[str, Key], sources: Sources) -> Iterator[Problem]:
    for name, value in revealed(table).items():
        here = (*path, name)
        key = keys.get(name)
        if key is None:
            yield sources.unknown(here, table[name], keys)
            continue
        # Clients take "1000" for a number, as Java's do; in a typed file it is more likely a slip.
        if not isinstance(value, _TYPES[key.kind]) or (key.kind == "int" and isinstance(value, bool)):
            yield sources.problem(here, _safe(key, value), f"must be {_TYPE_NAMES[key.kind]}")
            continue
        try:
            key.read(value)
        except ValueError as error:
            yield sources.problem(here, _safe(key, value), str(error))


def _safe(key: Key, value: object) -> object:
    return SecretStr("") if key.secret else value


def _placed(problem: Problem, path: KeyPath, sources: Sources) -> Problem:
    """A client's problem at its place in the file."""
    here = (*path, problem.key)
    placed = sources.problem(here, None, problem.allowed)
    return Problem(
        placed.where, placed.key, HIDDEN if is_secret(here) else without_credentials(problem.value), problem.allowed
    )
