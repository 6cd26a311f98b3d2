"""Antiphon: text that is still being written in, speech that is already being heard out.

from antiphon import Engine, synthesize

for samples in synthesize("Hello there.", voice="heart", stream=True):
    ...                                       # float32 mono, as soon as they are made

with Engine() as engine:                      # keeps what is loaded between turns
    samples = engine.synthesize("Hello there.")
    for samples in engine.synthesize(llm_tokens(), stream=True):
        ...                                   # any iterable of text pieces
    samples = engine.convert(Path("said.wav"), "ada")     # a recording in another voice
"""

from typing import TYPE_CHECKING, Any

from antiphon.offline import keep_offline

if TYPE_CHECKING:
    from antiphon.api import Engine, convert, synthesize

__all__ = ["Engine", "convert", "synthesize"]

keep_offline()


def __getattr__(name: str) -> Any:
    # The command line imports this package too, and must answer `--help` at once.
    if name in __all__:
        from antiphon import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
