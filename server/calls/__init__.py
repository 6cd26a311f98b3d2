"""Calls: a listener whose clock is ours, whatever brings the sound to them."""
