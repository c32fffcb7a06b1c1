"""The hub: what it lists, and the bytes of its files."""
