"""The script that ``mirror stream`` starts, like ``jobs/stream.py`` of the checkout."""

from __future__ import annotations

import sys

from mirror.spark.driver.stream_job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
