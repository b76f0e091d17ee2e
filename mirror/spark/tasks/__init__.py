"""What Spark's executors run: the tasks that copy ranges, with what the driver sends along."""
