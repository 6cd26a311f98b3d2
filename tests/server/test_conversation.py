"""Effects are carried out in the machine's order, whatever the transport does meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.engine.interface import SpeechRequest
from antiphon.engine.watermark.none import NoWatermark
from antiphon.server.admission import Admission
from antiphon.server.audio import AudioFormat
from antiphon.server.config import Limits
from antiphon.server.conversation import Conversation
from antiphon.server.engines import EngineSet
from antiphon.server.errors import SlowReader
from antiphon.server.metrics import Metrics
from antiphon.server.settings import TurnSettings
from antiphon.server.speaking import Resources
from antiphon.server.turn_events import (
    Audio,
    Cancel,
    Configure,
    Done,
    Effect,
    EndText,
    Feed,
    Opened,
    PushText,
)
from tests.server.harness import eventually
from tests.server.tone_engine import ToneEngine

SETTINGS = TurnSettings(
    model="tone",
    request=SpeechRequest("low"),
    format=AudioFormat.PCM,
    sample_rate=24_000,
    watermark="none",
)


class GatedOutlet:
    """A transport that takes messages only while its gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0
        self.written: list[Effect] = []
        self.given_up: list[SlowReader] = []
        self.patience_s = 5.0

    async def room(self, turn: int) -> None:
        """There is always room."""

    async def writable(self) -> None:
        self.waiting += 1
        try:
            async with asyncio.timeout(self.patience_s):
                await self.gate.wait()
        except TimeoutError:
            raise SlowReader("Nothing was read.") from None
        finally:
            self.waiting -= 1

    async def write(self, effect: Effect) -> None:
        assert self.gate.is_set(), "written to a transport without room"
        self.written.append(effect)

    def note(self, effect: Opened | Feed) -> None:
        """Nothing is kept."""

    def stalled(self, error: SlowReader) -> None:
        self.given_up.append(error)

    def kinds(self) -> list[str]:
        return [type(effect).__name__ for effect in self.written]


def conversation(engine: ToneEngine, outlet: GatedOutlet) -> Conversation:
    return Conversation(
        engines=EngineSet({"tone": engine}, model="tone", voice=None, watermark=engine.watermark),
        resources=Resources(Admission(4, 1.0, "sessions"), Metrics()),
        limits=Limits(),
        outlet=outlet,
    )


@pytest.fixture
def engine() -> ToneEngine:
    return ToneEngine(NoWatermark())


async def test_audio_that_waits_for_the_transport_is_dropped_by_a_cancel(
    engine: ToneEngine,
) -> None:
    outlet = GatedOutlet()
    talk = conversation(engine, outlet)
    await talk.submit(Configure("", SETTINGS))
    outlet.gate.clear()
    await talk.submit(PushText("", "one two three "))
    await eventually(lambda: outlet.waiting == 1)
    cancelling = asyncio.create_task(talk.submit(Cancel("")))
    # The engine is free although the answer still waits for room.
    await eventually(lambda: engine.counters.open_now == 0)
    assert not cancelling.done()
    outlet.gate.set()
    await cancelling
    assert outlet.kinds() == ["Ready", "Done"]
    await talk.close()


async def test_a_transport_that_never_takes_anything_frees_the_turn(engine: ToneEngine) -> None:
    outlet = GatedOutlet()
    talk = conversation(engine, outlet)
    await talk.submit(Configure("", SETTINGS))
    outlet.gate.clear()
    outlet.patience_s = 0.05
    await talk.submit(PushText("", "one two three "))
    await eventually(lambda: bool(outlet.given_up) and not engine.counters.open_now)
    assert talk.machine.closed
    assert outlet.kinds() == ["Ready"]
    await talk.close()


async def test_a_turn_ends_after_its_audio(engine: ToneEngine) -> None:
    outlet = GatedOutlet()
    talk = conversation(engine, outlet)
    await talk.submit(Configure("", SETTINGS))
    await talk.submit(PushText("", "one two three"))
    await talk.submit(EndText(""))
    await eventually(lambda: isinstance(outlet.written[-1], Done))
    last_audio = max(i for i, effect in enumerate(outlet.written) if isinstance(effect, Audio))
    assert last_audio < len(outlet.written) - 1
    assert engine.counters.open_now == 0
    await talk.close()


async def test_close_waits_until_the_engine_is_free(engine: ToneEngine) -> None:
    engine.behaviour.seconds_per_word = 0.01
    engine.behaviour.cancel_takes_s = 0.1
    talk = conversation(engine, GatedOutlet())
    await talk.submit(Configure("", SETTINGS))
    await talk.submit(PushText("", "one two three "))
    await eventually(lambda: engine.counters.open_now == 1)
    await talk.close()
    assert engine.counters.open_now == 0
    assert talk.machine.deadline() is None
