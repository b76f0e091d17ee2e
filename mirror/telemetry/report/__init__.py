"""Renders a run as one HTML file from plain data. No I/O except for its own templates.

::

    FlowReportData (model) ──findings──► problems and advice ────────┐
           │                                                         ├──page──► one self-contained HTML file
           └──────────── payload: thinned curves (curves) ───────────┘          (page.html.j2, *.css, *.js, Plotly)
"""

from __future__ import annotations
