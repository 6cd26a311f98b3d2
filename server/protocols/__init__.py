"""One module a protocol: its messages, and a thin shell around the turn machine."""
