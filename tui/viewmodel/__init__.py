"""State and registers to rows for drawing: pure, no framework."""
