"""``mirror check-config``: a configuration checked whole, and shown as it is understood."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from mirror.cli.console import warn
from mirror.cli.options import AsJson, Config, SecretsDir
from mirror.config.exposed import sent_in_the_clear
from mirror.config.load import load
from mirror.spark.terminal import Terminal


def check_config(
    config: Config,
    secrets_dir: SecretsDir = None,
    as_json: AsJson = False,
) -> None:
    """Check a configuration and show what it means, overrides and defaults included; secrets stay hidden.

    Exit status: 0 it is right, 1 it is not.
    """
    loaded = load(config, secrets_dir=secrets_dir)
    for line in sent_in_the_clear(loaded, loaded.clusters):
        warn(line)
    described = loaded.described()
    if as_json:
        print(json.dumps(described, indent=2, ensure_ascii=False))
        return
    console = Terminal()
    for section, entries in described.items():
        for name, settings in entries.items():
            console.print(_table(f"{section}.{name}", settings))


def _table(title: str, settings: Mapping[str, object]) -> Table:
    table = Table(title=Text(title), title_justify="left", title_style="bold")
    table.add_column("key", no_wrap=True)
    table.add_column("value", overflow="fold")
    for key, value in settings.items():
        if isinstance(value, Mapping):
            for inner, option in value.items():
                table.add_row(Text(f'{key}."{inner}"'), _value(option))
        else:
            table.add_row(Text(key), _value(value))
    return table


def _value(value: object) -> Text:
    # Text, not str: rich would read "[.-]" of a regular expression as markup.
    return Text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
