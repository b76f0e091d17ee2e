"""The rounds that run beside the copies of a flow: consumer groups, topics, ACLs."""
