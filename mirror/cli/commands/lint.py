"""``mirror lint``: what is wrong, surprising or dangerous in a MirrorMaker 2 configuration."""

from __future__ import annotations

import json
import sys

import typer

from mirror.cli.options import AsJson
from mirror.cli.views import findings
from mirror.cli.views.findings import SourceFile
from mirror.exit_status import ATTENTION
from mirror.migration import importing, sources


def lint(file: SourceFile, as_json: AsJson = False) -> None:
    """Show which lines of a MirrorMaker 2 file have no effect, or another than their writer probably means.

    Dangerous settings are named, too, and defaults that are. It changes nothing, and secrets stay hidden.

    Exit status: 0 nothing was found, 1 the file cannot be read, 3 there are findings.
    """
    found = importing.lint(sources.read(findings.read_source(file), str(file)))
    if as_json:
        print(json.dumps({"findings": findings.as_json(found)}, indent=2, ensure_ascii=False))
    else:
        findings.print_findings(found, sys.stdout)
    if found:
        raise typer.Exit(ATTENTION)
