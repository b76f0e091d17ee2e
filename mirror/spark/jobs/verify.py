"""The script that ``mirror verify`` submits, like ``jobs/verify.py`` of the checkout."""

from __future__ import annotations

import sys

from mirror.spark.driver.verify_job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
