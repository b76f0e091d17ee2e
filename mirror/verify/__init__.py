"""Compares what is in a flow's source with what is in its target, independently of the code that copies.

::

    source ──► SourceCursor ─┐ batches with the same bytes: equal, without decoding
                             ├► records that are equal, one by one
    target ──► TargetCursor ─┘ otherwise: windows of both sides up to the next common record ──► Findings ──► Verdict
"""
