"""Text as it is written → words as they are spoken → the ids or phones of an engine."""
