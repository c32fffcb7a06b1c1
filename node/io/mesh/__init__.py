"""Links between nodes: TCP and TLS 1.3, proved identities, bounded queues, one link per pair."""
