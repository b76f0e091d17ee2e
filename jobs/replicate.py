"""Entry point for spark-submit: ``spark-submit jobs/replicate.py --config FILE [--flow NAME] [--json]``."""

from __future__ import annotations

import sys

from mirror.spark.driver.batch_job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
