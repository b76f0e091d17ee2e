"""``mirror config-schema``: the JSON Schema by which editors complete a configuration."""

from __future__ import annotations

import json

from mirror.config.json_schema import json_schema


def config_schema() -> None:
    """Print the JSON Schema of configurations, by which editors complete and check them.

    Taplo, of which VS Code's extension Even Better TOML is made, reads it if the first line of the configuration is
    "#:schema ./mirror.schema.json" and the file is beside it.
    """
    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
