"""Connections, protocols, configuration, limits, metrics and the command line."""
