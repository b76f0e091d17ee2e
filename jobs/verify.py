"""Entry point for spark-submit: ``spark-submit jobs/verify.py --config FILE [--flow NAME] [--proof FILE] [--json]``."""

from __future__ import annotations

import sys

from mirror.spark.driver.verify_job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
