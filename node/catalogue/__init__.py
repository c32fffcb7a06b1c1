"""Model cards of well-known models, as data."""
