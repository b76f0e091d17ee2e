"""The calls of an administrator: topics, configurations, groups, transactions, ACLs. No I/O."""
