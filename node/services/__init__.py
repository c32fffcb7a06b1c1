"""Thin loops that drive a core and perform its effects."""
