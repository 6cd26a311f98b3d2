"""Text ids in, speech ids out: layouts, sampling, and the backends that host the network."""
