"""Antiphon: text that is still being written in, speech that is already being heard out.

from antiphon import Engine, synthesize

for samples in synthesize("Hello there.", voice="heart", stream=True):
    ...                                       # float32 mono, as soon as they are made

with Engine() as engine:                      # keeps what is loaded between turns
    samples = engine.synthesize("Hello there.")
    for samples in engine.synthesize(llm_tokens(), stream=True):
        ...                                   # any iterable of text pieces
"""

from antiphon.api import Engine, synthesize

__all__ = ["Engine", "synthesize"]
