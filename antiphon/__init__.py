"""Antiphon: a real-time voice server."""
