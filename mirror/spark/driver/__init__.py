"""The driver: jobs, flows, the Spark session, terminal output and the report."""
