"""The script that ``mirror run`` submits, like ``jobs/replicate.py`` of the checkout."""

from __future__ import annotations

import sys

from mirror.spark.driver.batch_job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
