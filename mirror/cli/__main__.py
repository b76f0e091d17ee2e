"""``python -m mirror.cli``: the ``mirror`` command where its script is not installed."""

from __future__ import annotations

from mirror.cli.app import main

if __name__ == "__main__":
    main()
