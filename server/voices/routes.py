"""`/v1/voices`: voices made of recordings, shown and removed."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from antiphon.engine.errors import (
    AntiphonError,
    InvalidRequest,
    UnknownVoice,
    UnsupportedFeature,
)
from antiphon.engine.voice.enrol import Enrolment
from antiphon.engine.voice.enrolling import EnrollingEngine
from antiphon.engine.voice.folder import VoiceFolder
from antiphon.engine.voice.quality import RecordingRefused
from antiphon.engine.voice.record import Voice, check_voice_name
from antiphon.server.admission import Admission
from antiphon.server.errors import describe, outcome
from antiphon.server.house import House
from antiphon.server.http import HttpPart, json_response, read_body, voice_fields
from antiphon.server.voices.submission import Submission, read_submission
from antiphon.server.voices.views import enrolment_fields, record_fields, report_fields

_ENROLMENTS_AT_ONCE = 2
"""One that is heard and one that arrives: enrolling is heavy and must not take the machine from
those who are being spoken to."""


def voice_routes(house: House, http: HttpPart) -> list[BaseRoute]:
    """The routes, `GET /v1/voices` included."""
    part = VoicePart(house)
    path = "/v1/voices"
    return [
        Route(path, http.guarded(http.voices), methods=["GET"]),
        Route(path, http.guarded(part.add), methods=["POST"]),
        Route(f"{path}/{{name}}", http.guarded(part.show), methods=["GET"]),
        Route(f"{path}/{{name}}", http.guarded(part.remove), methods=["DELETE"]),
    ]


class VoicePart:
    """Endpoints of one server."""

    def __init__(self, house: House) -> None:
        self._house = house
        retry_after_s = house.config.server.limits.retry_after_s
        self._enrolments = Admission(_ENROLMENTS_AT_ONCE, retry_after_s, "enrolments")

    async def add(self, request: Request) -> Response:
        """Make a voice of a recording and store it; 201 with its report, 422 if it is no good."""
        self._house.check_open()
        folder = self._folder()
        slot = self._enrolments.acquire()
        try:
            limits = self._house.config.server.limits
            body = await read_body(request, limits.upload_bytes, limits.request_s)
            wanted = await read_submission(request.headers.get("content-type", ""), body)
            made = await self._enrol(wanted, folder)
        except RecordingRefused as error:
            self._house.metrics.errors.labels(error.code).inc()
            refusal = {"error": {**describe(error), "type": outcome(error).openai_type}}
            return json_response({**refusal, "report": report_fields(error.report)}, 422)
        finally:
            slot.release()
        return json_response({"voice": self._details(made.voice), **enrolment_fields(made)}, 201)

    async def show(self, request: Request) -> Response:
        """One voice: its consent, its figures, and whether it may be used now."""
        name = request.path_params["name"]
        for model, info in self._house.engines.voices():
            if info.name == name and not self._is_recorded(name):
                return json_response({**voice_fields(info), "model": model, "usable": True})
        folder = self._folder(unknown=name)
        voice = await asyncio.to_thread(folder.store.load, _known_name(name))
        return json_response(self._details(voice))

    async def remove(self, request: Request) -> Response:
        """Delete a voice. Whoever speaks with it falls silent."""
        name = _known_name(request.path_params["name"])
        if not self._is_recorded(name):
            own = [model for model, info in self._house.engines.voices() if info.name == name]
            if own:
                raise UnsupportedFeature(
                    f"The voice {name} belongs to the model {own[0]} and stays with it.",
                    field="name",
                )
        self._folder(unknown=name).remove(name)
        return json_response({"removed": name})

    async def _enrol(self, wanted: Submission, folder: VoiceFolder) -> Enrolment:
        check_voice_name(wanted.name)
        if not wanted.replace and self._is_recorded(wanted.name):
            # Before the work is done, not only by the store after it.
            raise InvalidRequest(
                f"There is a voice {wanted.name} already; `replace` it or choose another name.",
                field="name",
            )
        made = await self._engine(wanted.model).enrol(
            wanted.audio,
            name=wanted.name,
            consent=wanted.consent,
            transcript=wanted.transcript,
            language=wanted.language,
            clean_up=wanted.clean_up,
        )
        folder.add(made.voice, replace=wanted.replace)
        return made

    def _engine(self, model: str | None) -> EnrollingEngine:
        """The named model, or the first that can learn voices."""
        engines = self._house.engines
        names = engines.models if model is None else [engines.known_model(model)]
        for name in names:
            engine = engines.engine(name)
            if isinstance(engine, EnrollingEngine):
                return engine
        raise UnsupportedFeature(
            f"The model {model or engines.model} cannot learn voices.", field="model"
        )

    def _folder(self, *, unknown: str | None = None) -> VoiceFolder:
        folder = self._house.engines.folder
        if folder is not None:
            return folder
        if unknown is not None:
            raise UnknownVoice(f"There is no voice {unknown[:64]!r} here.", field="voice")
        raise UnsupportedFeature(
            "This server keeps no voices of recordings; set voices.folder in its configuration.",
            field="voices.folder",
        )

    def _is_recorded(self, name: str) -> bool:
        folder = self._house.engines.folder
        return folder is not None and name in folder.store.names()

    def _details(self, voice: Voice) -> dict[str, Any]:
        engines = self._house.engines
        loaded = [model for model, info in engines.voices() if info.name == voice.name]
        reason = None
        if not loaded:
            reason = f"It was made for {voice.model}, which is not loaded here."
        else:
            try:
                engines.engine(loaded[0]).check_voice(voice.name)
            except AntiphonError as error:
                reason = error.message
        return {
            **record_fields(voice),
            "model": loaded[0] if loaded else voice.model,
            "usable": reason is None,
            "reason": reason,
        }


def _known_name(name: str) -> str:
    try:
        return check_voice_name(name)
    except InvalidRequest:
        raise UnknownVoice(f"There is no voice {name[:64]!r} here.", field="voice") from None
