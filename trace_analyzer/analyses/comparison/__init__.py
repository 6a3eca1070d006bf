"""Two runs beside each other: are they the same work, and what changed."""
