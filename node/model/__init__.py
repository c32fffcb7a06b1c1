"""Frozen values shared by every layer: what the cluster is made of, and nothing that acts."""
