"""Training data made on this machine: sentences of our own, spoken by openly licensed teachers."""
