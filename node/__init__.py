"""The exoctl node: a runtime that joins machines into one cluster and runs language models on it."""
