"""The HTTP API: one file per dialect over the node handle."""
