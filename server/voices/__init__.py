"""Voices that are made of recordings: their folder, their routes, their consent."""
