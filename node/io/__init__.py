"""Adapters to the world: clock, disk, sockets, processes."""
