"""The official model directory: YAML, weights, tokenizer and stored voices, read as data."""

from antiphon.engine.checkpoint.checkpoint import Checkpoint, open_checkpoint

__all__ = ["Checkpoint", "open_checkpoint"]
