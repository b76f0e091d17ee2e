"""The copies of one Spark task, and the clients and threads that they share."""
