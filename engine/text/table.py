"""Small word lists, written so that they can be read and extended."""

from __future__ import annotations


def table(text: str) -> dict[str, str]:
    """Read `written: spoken; written: spoken; …` over any number of lines."""
    entries = (entry.strip() for entry in text.replace("\n", " ").split(";"))
    pairs = (entry.split(": ") for entry in entries if entry)
    return {written: " ".join(spoken.split()) for written, spoken in pairs}
