"""A directory of `.voice` files, one a voice, named after it."""

from __future__ import annotations

from pathlib import Path

from antiphon.engine.errors import InvalidRequest, UnknownVoice
from antiphon.engine.voice.record import Voice, check_voice_name
from antiphon.engine.voice.voice_file import load_voice, save_voice

SUFFIX = ".voice"
MAX_VOICES = 10_000


class VoiceStore:
    """Voices on disk. Reads are small; nothing is cached, so a removed voice is gone at once."""

    def __init__(self, directory: Path, *, limit: int = MAX_VOICES) -> None:
        """Use a directory, made if it is not there. `limit` bounds the number of voices."""
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._limit = limit

    def names(self) -> list[str]:
        """Return the names of all voices, sorted."""
        return sorted(path.stem for path in self._directory.glob(f"*{SUFFIX}"))

    def add(self, voice: Voice, *, replace: bool = False) -> None:
        """Store a voice.

        Raises:
            InvalidRequest: the name is taken and `replace` is not set, or the store is full.
        """
        path = self.path(voice.name)
        if path.exists() and not replace:
            raise InvalidRequest(f"There is a voice {voice.name} already.", field="name")
        if not path.exists() and len(self.names()) >= self._limit:
            raise InvalidRequest("No more voices can be stored.", field="name", limit=self._limit)
        save_voice(voice, path)

    def load(self, name: str) -> Voice:
        """Return a voice.

        Raises:
            UnknownVoice: there is none of that name.
            InvalidRequest: its file is damaged or holds a voice of another name.
        """
        path = self._existing(name)
        voice = load_voice(path)
        if voice.name != name:
            raise InvalidRequest(
                f"The file {path.name} holds the voice {voice.name}.", field="voice"
            )
        return voice

    def identity(self, name: str) -> tuple[int, int, int]:
        """Return inode, size and time of change of a voice's file: others once it is written anew.

        Raises:
            UnknownVoice: there is none of that name.
        """
        try:
            status = self._existing(name).stat()
        except OSError as error:
            raise UnknownVoice(f"There is no voice {name}.", field="voice") from error
        return status.st_ino, status.st_size, status.st_mtime_ns

    def changed(self) -> int:
        """Return the time, in nanoseconds, at which a voice was last added, replaced or removed."""
        return self._directory.stat().st_mtime_ns

    def remove(self, name: str) -> None:
        """Delete a voice.

        Raises:
            UnknownVoice: there is none of that name.
        """
        self._existing(name).unlink(missing_ok=True)

    def path(self, name: str) -> Path:
        """Return where a voice of this name lies, or would.

        Raises:
            InvalidRequest: it is no name.
        """
        return self._directory / f"{check_voice_name(name)}{SUFFIX}"

    def _existing(self, name: str) -> Path:
        try:
            path = self.path(name)
        except InvalidRequest as error:
            raise UnknownVoice("There is no voice of that name.", field="voice") from error
        if not path.is_file():
            raise UnknownVoice(f"There is no voice {name}.", field="voice")
        return path
