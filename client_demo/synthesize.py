"""Speak without a server: pieces of text in, arrays of samples out, saved as `hello.wav`."""

import wave
from collections.abc import Iterator

import numpy as np

from antiphon import Engine


def llm_answer() -> Iterator[str]:
    """Stand in for a language model that writes its answer piece by piece."""
    yield from ("Hel", "lo ", "there, ", "it ", "is ", "half ", "past ", "seven.")


def main() -> None:
    """Print when each piece of audio is there, and save them."""
    with Engine() as engine, wave.open("hello.wav", "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(engine.sample_rate)
        for samples in engine.synthesize(llm_answer(), stream=True):
            print(f"{len(samples) / engine.sample_rate:.2f} s of audio")
            file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())


if __name__ == "__main__":
    main()
