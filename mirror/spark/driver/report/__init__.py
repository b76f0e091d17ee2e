"""``report.html`` in the report folder, and the lock of that folder."""
