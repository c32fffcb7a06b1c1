"""The child process that holds a shard of a model; the only place that imports mlx."""
