"""The exoctl node: it joins machines into one cluster and runs language models on it."""
