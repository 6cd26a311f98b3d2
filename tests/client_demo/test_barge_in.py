"""Interruptions: nothing is heard a tenth of a second later, whether a key is pressed or a voice
speaks. What is heard is observed beside the page's own figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client_demo.chromium import needs_chromium, tab
from tests.client_demo.speaking import recording, speaking_server
from tests.server.harness import serving

TEXT = "one two three four five six seven eight " * 5
SPEECH = (
    "Text goes in while it is being written, and speech comes out while it is being heard. "
    "You can interrupt me at any moment, and I will stop within a twentieth of a second. "
    "Every sample that leaves this server carries a watermark that nobody hears."
)
OBSERVE = """() => {
  // A call is played by an audio element, which nobody hears once it is muted.
  const seen = (window.seen = { pressed: null, loud: 0, looks: 0, muted: null });
  window.Audio = class extends Audio {
    set muted(yes) {
      super.muted = yes;
      seen.muted = yes ? performance.now() : null;
    }
    get muted() {
      return super.muted;
    }
  };
  addEventListener("keydown", ({ timeStamp }) => (seen.pressed = timeStamp), true);
}"""
LISTEN = """() => {
  const analyser = window.antiphon.sound();
  const { baseLatency, outputLatency } = analyser.context;
  const later = 1000 * ((baseLatency || 0) + (outputLatency || 0));
  const newest = new Float32Array(128);
  setInterval(() => {
    analyser.getFloatTimeDomainData(newest);
    const { seen } = window;
    if (newest.some((sample) => Math.abs(sample) > 0.01)) seen.loud = performance.now() + later;
    if (seen.pressed !== null && performance.now() > seen.pressed + 100) seen.looks += 1;
  }, 5);
}"""


@needs_chromium
@pytest.mark.parametrize("transport", ["socket", "call"])
async def test_nothing_is_heard_a_tenth_of_a_second_after_escape(transport: str) -> None:
    async with serving() as server, tab(server) as page:
        await page.page.evaluate(OBSERVE)
        await page.page.select_option("#transport", transport)
        await page.page.fill("#text", TEXT)
        await page.page.click("#speak")
        await page.until("window.antiphon.speaking && window.antiphon.played > 0.3")
        await page.page.evaluate(LISTEN)
        await page.until("window.seen.loud > 0")
        await page.page.keyboard.press("Escape")
        await page.until("window.antiphon.interruptedMs !== null && window.seen.looks > 20")
        seen, state = await page.page.evaluate("window.seen"), await page.state()
    silent_at = seen["muted"] if transport == "call" else seen["loud"]
    assert silent_at - seen["pressed"] < 100
    assert state["interruptedMs"] < 100
    assert not state["speaking"]


@pytest.mark.slow
@needs_chromium
async def test_a_voice_interrupts(tmp_path: Path) -> None:
    async with speaking_server() as server:
        voice = await recording(
            server, "Stop, please. I want to say something.", tmp_path / "voice.wav", pause_s=4.0
        )
        microphone = (
            "--use-fake-ui-for-media-stream",
            "--use-fake-device-for-media-stream",
            f"--use-file-for-fake-audio-capture={voice}%noloop",
        )
        async with tab(server, *microphone) as page:
            await page.page.evaluate(OBSERVE)
            await page.page.select_option("#transport", "call")
            await page.page.check("#barge")
            await page.page.fill("#text", SPEECH)
            await page.page.click("#speak")
            await page.until("window.antiphon.speaking && window.antiphon.played > 0.5", 60)
            await page.until("window.antiphon.turns === 1", 60)
            state, seen = await page.state(), await page.page.evaluate("window.seen")
            dropped = "document.querySelectorAll('#words .dropped').length"
            assert await page.page.evaluate(dropped) > 0
            # Neither a key nor the end of the text, of some 13 s: the voice.
            assert seen["pressed"] is None
            assert state["done"] is None
            assert state["played"] < 10
            assert state["interruptedMs"] < 100
            assert seen["muted"] is not None
            await page.until("window.antiphon.silentMs !== null")
            (call,) = server.calls.listing()
            assert call["caller_s"] > 1
            assert page.errors == []
