"""The output of the jobs and of the command line: tables, progress, errors."""
