"""What runs in the driver: jobs, sessions, terminal output, report."""
