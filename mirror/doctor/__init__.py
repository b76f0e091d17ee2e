"""What keeps flows from working, found in less than a minute: facts of clusters and of this host, then findings.

::

    clusters ──cluster_facts──► ClusterFacts ──cluster_checks──┐
    this host ──host_facts────► HostFacts ─────host_checks─────┼──► findings: what, why it matters, what to do
    flows ─────flow_facts─────► FlowFacts ─────flow_checks─────┘

The checks are pure; their words are those of :mod:`mirror.causes`, which the errors of runs have, too.
"""
