"""Transactions and their coordinators. No I/O."""
