"""What is lost, and how long until clients are served again, when a part of a replication is lost."""
