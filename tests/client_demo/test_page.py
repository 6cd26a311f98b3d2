"""The page in headless Chromium: speaks without gaps, in every mode, by keyboard, on a phone."""

from __future__ import annotations

import httpx
import numpy as np
import pytest

from tests.client_demo.chromium import needs_chromium, tab
from tests.server.harness import serving

TEXT = "one two three four five six seven eight"


async def test_the_page_is_served_with_headers_that_keep_foreign_code_out() -> None:
    async with (
        serving() as server,
        httpx.AsyncClient(trust_env=False, base_url=server.url) as http,
    ):
        page = await http.get("/")
        assert page.status_code == 200
        assert "default-src 'self'" in page.headers["content-security-policy"]
        script = await http.get("/main.js")
        assert script.headers["content-type"].startswith("text/javascript")
        assert (await http.get("/../server/config.py")).status_code == 404
        assert (await http.get("/nothing")).status_code == 404
        assert (await http.get("/v1/nothing")).status_code == 404


@needs_chromium
@pytest.mark.parametrize(
    "form",
    ["pcm", *(pytest.param(form, marks=pytest.mark.slow) for form in ("opus_raw", "ulaw"))],
)
async def test_it_speaks_without_gaps_in_every_form(form: str) -> None:
    async with serving() as server, tab(server) as page:
        await page.page.select_option("#format", form)
        await page.page.select_option("#voice", "tone/mid")
        state = await page.speak(TEXT)
        assert state["problem"] == ""
        assert state["done"]["finish_reason"] == "stop"
        assert state["gaps"] == 0
        assert state["started"]["response_format"] == form
        assert state["started"]["voice"] == "mid"
        assert state["played"] == pytest.approx(1.6, abs=0.1)
        assert 0 < state["firstPacketMs"] <= state["firstSoundMs"]
        words = "document.querySelectorAll('#words .spoken').length"
        assert await page.page.evaluate(words) == len(TEXT.split()) * 2 - 1
        assert page.errors == []


@pytest.mark.slow
@needs_chromium
async def test_words_light_up_one_after_the_other() -> None:
    async with serving() as server, tab(server) as page:
        await page.page.fill("#text", TEXT)
        await page.page.click("#speak")
        await page.until("window.antiphon.speaking && window.antiphon.played > 0.5")
        spoken, now, played = await page.page.evaluate(
            "[[...document.querySelectorAll('#words .spoken')].map((n) => n.textContent).join(''),"
            " document.querySelector('#words .now')?.textContent, window.antiphon.played]"
        )
        at = int(played / 0.2)
        # The word that sounds, give or take the frame that is being drawn.
        assert now in TEXT.split()[max(0, at - 1) : at + 2]
        assert spoken.split()[-1] == now


@needs_chromium
async def test_escape_interrupts_at_once_and_the_next_turn_is_whole() -> None:
    async with serving() as server, tab(server) as page:
        await page.page.fill("#text", " ".join(TEXT.split() * 5))
        await page.page.click("#speak")
        await page.until("window.antiphon.speaking && window.antiphon.played > 0.3")
        await page.page.keyboard.press("Escape")
        await page.until("window.antiphon.interruptedMs !== null")
        state = await page.state()
        assert state["interruptedMs"] < 100
        assert not state["speaking"]
        assert await page.page.evaluate("document.querySelectorAll('#words .dropped').length") > 0
        state = await page.speak("one two")
        assert state["done"]["finish_reason"] == "stop"
        assert state["played"] == pytest.approx(0.4, abs=0.1)
        assert server.engine.counters.open_now == 0
        assert page.errors == []


@pytest.mark.slow
@needs_chromium
async def test_it_works_by_keyboard_alone() -> None:
    async with serving() as server, tab(server) as page:
        await page.page.focus("#text")
        await page.page.keyboard.press("Control+a")
        await page.page.keyboard.type("one two three")
        await page.page.keyboard.press("Control+Enter")
        await page.until("window.antiphon.turns === 1")
        assert (await page.state())["done"]["samples"] == 3 * 4800
        order = []
        await page.page.focus("#theme")
        for _ in range(10):
            await page.page.keyboard.press("Tab")
            order.append(
                await page.page.evaluate("document.activeElement.id || document.activeElement.name")
            )
        assert order == [
            "text", "mode", "pace", "voice", "transport", "format", "hop", "barge", "speak",
            "words",
        ]  # fmt: skip


@needs_chromium
async def test_words_are_spoken_while_they_are_typed() -> None:
    async with serving() as server, tab(server) as page:
        spoken = "document.getElementById('words').textContent"
        await page.page.fill("#text", "")
        await page.page.check("input[value=type]", force=True)
        await page.page.focus("#text")
        await page.page.keyboard.type("one two thr")
        # Two words are finished, and heard before the third is.
        await page.until("window.antiphon.speaking && window.antiphon.played > 0.3")
        assert await page.page.evaluate(spoken) == "one two "
        assert (await page.state())["turns"] == 0
        await page.page.keyboard.type("ee fo")
        await page.until(f"{spoken} === 'one two three '")
        await page.page.keyboard.type("ur")
        await page.page.keyboard.press("Control+Enter")
        await page.until("window.antiphon.turns === 1")
        state = await page.state()
        assert (state["done"]["finish_reason"], state["done"]["samples"]) == ("stop", 4 * 4800)
        assert await page.page.evaluate(spoken) == "one two three four"
        # What was said is not said again; what is typed behind it is a turn of its own.
        await page.page.keyboard.type(" five ")
        await page.until(f"{spoken}.trim() === 'five'")
        await page.page.keyboard.press("Control+Enter")
        await page.until("window.antiphon.turns === 2")
        assert (await page.state())["done"]["samples"] == 4800
        assert page.errors == []


@needs_chromium
async def test_a_pasted_text_is_sent_at_once() -> None:
    async with serving() as server, tab(server) as page:
        await page.page.check("input[value=paste]", force=True)
        assert not await page.page.is_visible("#pace")
        state = await page.speak(TEXT)
        assert state["done"]["samples"] == 8 * 4800
        assert page.errors == []


@needs_chromium
async def test_what_the_server_refuses_is_shown() -> None:
    async with serving() as server, tab(server) as page:
        await page.page.fill("#hop", "99")
        await page.page.click("#speak")
        await page.until("window.antiphon.problem !== ''")
        assert "first_hop lies between 5 and 50" in (await page.state())["problem"]
        await page.page.fill("#hop", "10")
        assert (await page.speak("one"))["problem"] == ""


@needs_chromium
async def test_a_call_speaks_and_is_interrupted() -> None:
    async with serving() as server, tab(server) as page:
        await page.page.select_option("#transport", "call")
        state = await page.speak(TEXT)
        assert state["done"]["finish_reason"] == "stop"
        assert state["started"]["response_format"] == "opus_raw"
        await page.page.fill("#text", " ".join(TEXT.split() * 3))
        await page.page.click("#speak")
        await page.until("window.antiphon.speaking && window.antiphon.played > 0.5")
        before = await page.page.evaluate("window.antiphon.call")
        await page.page.keyboard.press("Escape")
        await page.until("window.antiphon.turns === 2 && window.antiphon.silentMs !== null")
        state = await page.state()
        assert state["interruptedMs"] < 100
        # From the server comes silence after the packets on their way and the jitter buffer.
        assert state["silentMs"] < 300
        state = await page.speak("after the interruption")
        assert state["done"]["samples"] == 3 * 4800
        call = await page.page.evaluate("window.antiphon.stats()")
        assert call["totalAudioEnergy"] > before["totalAudioEnergy"] > 0
        assert call["packetsLost"] == 0
        assert page.errors == []


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
async def test_it_is_readable_on_a_phone(scheme: str) -> None:
    async with serving() as server, tab(server, width=360, height=740, color_scheme=scheme) as page:
        wide = await page.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 360
        small = await page.page.evaluate(
            "[...document.querySelectorAll('button.primary, #interrupt, select, textarea')]"
            ".filter((n) => n.getBoundingClientRect().height < 36).map((n) => n.id)"
        )
        assert small == []
        for ids in (("text",), ("status",), ("compose-title",), ("hear-title",), ("words",)):
            ink, ground = await page.page.evaluate(
                "([id]) => { const n = document.getElementById(id);"
                "let p = n; while (getComputedStyle(p).backgroundColor === 'rgba(0, 0, 0, 0)')"
                " p = p.parentElement;"
                "return [getComputedStyle(n).color, getComputedStyle(p).backgroundColor]; }",
                list(ids),
            )
            # WCAG 2.2, 1.4.3: 4.5 to 1 for text.
            assert contrast(ink, ground) >= 4.5, ids


def contrast(first: str, second: str) -> float:
    """Contrast ratio of two CSS colours as Chromium computes them."""
    lights = sorted((luminance(first), luminance(second)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def luminance(colour: str) -> float:
    values = np.array([float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]])
    linear = np.where(
        values / 255 <= 0.04045, values / 255 / 12.92, ((values / 255 + 0.055) / 1.055) ** 2.4
    )
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("transport", ["socket", "call"])
async def test_a_key_opens_the_page_to_a_guarded_server(transport: str) -> None:
    guarded = {"server.api_keys": ["a-long-key"]}
    async with (
        serving(guarded) as server,
        tab(server, ready="An API key is needed.") as page,
    ):
        await page.page.click("summary")
        await page.page.fill("#key", "a-long-key")
        await page.page.keyboard.press("Tab")
        await page.until("document.getElementById('status').textContent === 'Ready'")
        await page.page.select_option("#transport", transport)
        assert (await page.speak("one two"))["done"]["finish_reason"] == "stop"
