"""Models that lie on this machine: found, checked, described, and the embedded one made ready."""
