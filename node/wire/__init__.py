"""Messages between nodes and their bytes: pure encoding and framing."""
