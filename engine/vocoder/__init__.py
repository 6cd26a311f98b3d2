"""HiFT vocoder: mel to samples, whole and streamed."""
