"""Where a model can go: every way to place it, with numbers, and which is best."""
