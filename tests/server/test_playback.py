"""The listener's clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.server.playback import Playback

PACKETS = st.lists(st.tuples(st.floats(0, 2), st.floats(0.01, 2)), min_size=1, max_size=30)


@given(PACKETS)
def test_time_is_speech_and_silence(packets: list[tuple[float, float]]) -> None:
    playback = Playback()
    now = 5.0
    for wait, seconds in packets:
        now += wait
        playback.heard(seconds, now)
        assert playback.lead_s(now) >= seconds * 0.999
    speech = sum(seconds for _, seconds in packets)
    assert playback.started_at == 5.0 + packets[0][0]
    assert playback.runs_dry_at - playback.started_at == pytest.approx(speech + playback.gap_s)
    assert playback.gaps < len(packets)


def test_a_late_packet_is_a_gap_and_an_early_one_is_lead() -> None:
    playback = Playback()
    playback.heard(0.1, 1.0)
    playback.heard(0.1, 1.05)
    assert (playback.gaps, playback.lead_s(1.05)) == (0, pytest.approx(0.15))
    playback.heard(0.1, 1.5)
    assert (playback.gaps, playback.gap_s) == (1, pytest.approx(0.3))
    assert playback.lead_s(2.0) == 0.0
