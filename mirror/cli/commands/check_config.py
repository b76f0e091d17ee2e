"""``mirror check-config``: check a whole configuration, and show its effective values."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from rich.table import Table
from rich.text import Text

from mirror.cli.console import print_warning
from mirror.cli.options import AsJson, Config, SecretsDir
from mirror.cluster.auth.security import Security, TlsSettings
from mirror.cluster.settings import ClusterSettings
from mirror.config.effective import configured_keys, effective_config
from mirror.config.exposed import readable_secrets, unencrypted_credentials
from mirror.config.key_names import KeyPath, dotted
from mirror.config.load import load
from mirror.config.models import MirrorConfig
from mirror.config.notices import notices
from mirror.errors import ConfigError
from mirror.spark.driver.output.terminal import Terminal

_WHOLE: Final = frozenset({"headers", "names", "configs-overrides"})
"""Tables of a flow that are shown as one value."""


def check_config(
    config: Config,
    secrets_dir: SecretsDir = None,
    as_json: AsJson = False,
) -> None:
    """Check a configuration and show its effective values, with overrides and defaults; secrets stay hidden.

    A key without effect is a warning. Transforms, token providers and the library of Kerberos must be importable here,
    and the files of TLS readable.

    Exit status: 0 valid, 1 not valid.
    """
    loaded = load(config, secrets_dir=secrets_dir, why_not_loaded=why_not_loaded)
    check_credentials(loaded, str(config))
    without_effect = (line for flow in loaded.flows.values() for line in notices(loaded, flow))
    exposed = (*unencrypted_credentials(loaded, loaded.clusters), *readable_secrets(loaded))
    for line in dict.fromkeys([*without_effect, *exposed]):
        print_warning(line)
    tables = effective_config(loaded)
    if as_json:
        print(json.dumps(tables, indent=2, ensure_ascii=False))
        return
    console = Terminal()
    configured = configured_keys(loaded)
    for section, entries in tables.items():
        for name, settings in entries.items():
            console.print(_table((section, name), settings, configured))


def check_credentials(loaded: MirrorConfig, where: str) -> None:
    """Load the stores, token providers and Kerberos of clusters. Raises ConfigError with what cannot be loaded."""
    problems = []
    for name, cluster in loaded.clusters.items():
        for load_one in _loads(ClusterSettings.parse(cluster.client_options()).security):
            try:
                load_one()
            except ConfigError as error:
                at = ("clusters", name)
                problems += [replace(each, where=where, key=dotted((*at, each.key))) for each in error.problems]
    if problems:
        raise ConfigError(problems)


def _loads(security: Security) -> Iterator[Callable[[], object]]:
    """Yield what loads each part of the credentials, of which each import takes its time."""
    if security.tls != TlsSettings():
        from mirror.runtime.network.tls_contexts import make_context

        yield partial(make_context, security.tls)
    if security.sasl is not None and security.sasl.kerberos:
        from mirror.runtime.network.kerberos import load_gssapi

        yield load_gssapi
    elif security.sasl is not None and security.sasl.token_provider:
        from mirror.runtime.network.token_providers import load_provider

        yield partial(load_provider, security.sasl.token_provider)


def why_not_loaded(transform: str) -> str | None:
    """Return why ``transform`` cannot be imported here, or None if it can. Imports the copying code only if called."""
    from mirror.spark.preflight import transform_check

    return transform_check.why_not_loaded(transform)


def _table(path: KeyPath, settings: Mapping[str, object], configured: Collection[KeyPath]) -> Table:
    table = Table(title=Text(".".join(path)), title_justify="left", title_style="bold")
    table.add_column("key", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("")
    for key, value in settings.items():
        inner = value if isinstance(value, Mapping) and key not in _WHOLE else {}
        for option, plain in inner.items():
            table.add_row(Text(dotted((key, option))), _value(plain), _mark((*path, key, option) in configured))
        if not inner:
            table.add_row(Text(key), _value(value), _mark((*path, key) in configured))
    return table


def _mark(configured: bool) -> Text:
    return Text("" if configured else "default", style="dim")


def _value(value: object) -> Text:
    # Text, not str: rich would read "[.-]" of a regular expression as markup.
    return Text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
