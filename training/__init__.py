"""Recipes that train the small house voice with the engine's own modules."""
