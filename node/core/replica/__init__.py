"""Election and the ordered, replicated log, without clock, chance or I/O."""
