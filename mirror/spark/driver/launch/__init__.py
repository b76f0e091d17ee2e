"""How a job is started: its submission to Spark, and the check of its master."""
