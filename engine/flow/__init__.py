"""Flow matching: speech tokens to mel, whole and streamed."""
