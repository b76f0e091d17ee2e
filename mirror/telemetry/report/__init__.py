"""A run as one HTML file: plain data in, one page out. No I/O but for its own templates.

::

    FlowView (view) ──findings──► what is wrong, and what to do ──┐
           │                                                      ├──page──► one self-contained HTML file
           └────────── payload: curves thinned (curves) ──────────┘          (page.html.j2, *.css, *.js, Plotly)
"""

from __future__ import annotations
