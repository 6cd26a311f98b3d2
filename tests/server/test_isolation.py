"""Who asks reaches the engines that keep callers apart alone; a model that is away shows."""

from __future__ import annotations

import httpx
import pytest

from antiphon.engine.interface import SpeechRequest
from antiphon.engine.watermark.none import NoWatermark
from antiphon.server.engines import EngineSet
from antiphon.server.run import running
from tests.server.harness import PATH, Client, connect, serving, tone_config
from tests.server.tone_engine import ToneEngine, ToneSession

KEYS = ("key-of-ada", "key-of-bob")


class Noting(ToneEngine):
    """Tones, and a note of every request."""

    def __init__(self, name: str) -> None:
        super().__init__(NoWatermark(), name=name)
        self.asked: list[SpeechRequest] = []

    async def open_session(self, request: SpeechRequest) -> ToneSession:
        self.asked.append(request)
        return await super().open_session(request)


async def test_callers_are_kept_apart_where_the_configuration_asks_for_it() -> None:
    apart, shared = Noting("apart"), Noting("shared")
    engines = EngineSet(
        {"apart": apart, "shared": shared},
        model="apart",
        voice="low",
        watermark=NoWatermark(),
        isolated=["apart"],
    )
    config = tone_config({"server.api_keys": list(KEYS)})
    async with running(config, engines) as server:
        for engine in (apart, shared):
            engine.asked.clear()
        for key in (*KEYS, KEYS[0]):
            for model in ("apart", "shared"):
                headers = {"Authorization": f"Bearer {key}"}
                url = server.url.replace("http", "ws", 1) + PATH
                async with connect(url, proxy=None, additional_headers=headers) as socket:
                    client = Client(socket)
                    await client.configure(model=model, voice="low")
                    await client.say("Hi.")
        async with httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
            body = {"model": "apart", "voice": "low", "input": "Hi."}
            answer = await http.post("/v1/audio/speech", json=body, headers=headers)
            assert answer.status_code == 200
    ada, bob, again, http_ada = (request.tenant for request in apart.asked)
    assert ada == again == http_ada
    assert None not in (ada, bob)
    assert ada != bob
    assert not any(key in str(ada) for key in KEYS), "keys stay with the server"
    assert [request.tenant for request in shared.asked] == [None] * 3


@pytest.mark.parametrize("ready", [True, False])
async def test_readyz_follows_the_models(ready: bool) -> None:
    async with serving() as server:
        server.engine.ready = ready
        async with httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
            answer = await http.get("/readyz")
            assert answer.status_code == (200 if ready else 503)
            if not ready:
                assert answer.json()["error"]["code"] == "not_ready"
                assert int(answer.headers["retry-after"]) >= 1
            assert (await http.get("/healthz")).status_code == 200
