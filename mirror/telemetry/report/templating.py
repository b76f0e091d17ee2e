"""The templates of pages that are one file, and the policy that allows such a page its own scripts only."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from functools import cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from mirror.telemetry.report import format as formats


@cache
def template(name: str) -> Template:
    """Return a template, which escapes what it is given: names of topics and messages of brokers are untrusted."""
    environment = Environment(
        loader=PackageLoader(__package__, "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(moment=formats.moment, counted=formats.counted)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment.get_template(name)


# Invariant: Names of topics and errors of brokers reach the report as text only: its policy allows no script but this
#   project's, by hash, and no network access.
# Test: tests/telemetry/test_report_page.py::test_page_allows_no_network_access_and_no_other_script
def policy_of(scripts: Iterable[str]) -> str:
    """Return a Content-Security-Policy that allows only these scripts, by their hashes, and no network access."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts
    )
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"


def asset(name: str) -> str:
    """Return one of the files that a page consists of."""
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")
