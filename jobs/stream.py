"""Entry point of a stream: ``python jobs/stream.py --config FILE [--flow NAME] [--json]``."""

from __future__ import annotations

import sys

from mirror.spark.driver.stream_job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
