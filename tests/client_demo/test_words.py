"""Words on the page light up while they sound: what is lit against what the page itself hears."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.client_demo.chromium import needs_chromium, tab
from tests.server.harness import serving
from tests.server.tone_engine import WORD_SAMPLES, word_tone

WORDS = ("ash", "larch", "rowan", "willow", "cedar", "spruce")
"""Their tones lie 78 Hz and more apart."""
OWLS = "🦉" * 16
"""One word of sixteen characters, which JavaScript's strings count as thirty-two; its tone lies
74 Hz from the nearest of theirs."""
WORD_S = WORD_SAMPLES / 24_000
BIN_HZ = 24_000 / 1024
WATCH = """() => {
  window.seen = [];
  const watch = (now) => {
    requestAnimationFrame(watch);
    const { speaking, sound } = window.antiphon;
    if (!speaking) return;
    const analyser = sound();
    const levels = new Float32Array(analyser.frequencyBinCount);
    analyser.getFloatFrequencyData(levels);
    const loudest = levels.indexOf(Math.max(...levels));
    const lit = document.querySelector("#words .now")?.textContent ?? "";
    window.seen.push({ now: now / 1000, bin: levels[loudest] > -60 ? loudest : 0, lit });
  };
  watch(performance.now());
}"""


def first_times(seen: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """When each word was first heard, and first lit."""
    heard, lit = [], []
    for word in WORDS:
        tone = word_tone("mid", word)
        heard.append(min(each["now"] for each in seen if abs(each["bin"] * BIN_HZ - tone) < 30))
        lit.append(min((each["now"] for each in seen if each["lit"] == word), default=np.inf))
    return heard, lit


@needs_chromium
@pytest.mark.parametrize(
    ("transport", "before"), [("socket", ""), ("call", ""), ("socket", f"{OWLS} ")]
)
async def test_words_light_up_as_they_sound(transport: str, before: str) -> None:
    async with serving() as server, tab(server) as page:
        await page.page.select_option("#voice", "tone/mid")
        await page.page.select_option("#transport", transport)
        # A call is made, and its jitter buffer known, before the turn that counts.
        await page.speak("one two three")
        await page.page.evaluate(WATCH)
        await page.speak(before + " ".join(WORDS))
        seen = await page.page.evaluate("window.seen")
        assert page.errors == []
    # The last word of a call may sound beyond the end of the turn.
    heard, lit = (np.array(times[:-1]) for times in first_times([*seen, *ENDLESS]))
    late = lit - heard
    print(transport, np.round(1000 * late), "ms late", len(seen), "pictures")
    assert np.abs(late).max() < WORD_S
    assert np.abs(np.median(late)) < 0.08


ENDLESS = [{"now": np.inf, "bin": round(word_tone("mid", WORDS[-1]) / BIN_HZ), "lit": WORDS[-1]}]
