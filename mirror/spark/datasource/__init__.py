"""The Spark data sources: `mirror-ranges` plans the ranges, `mirror` copies them."""
