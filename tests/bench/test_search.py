"""The search for the most that a machine carries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bench.calls import Search
from bench.search import next_count


@given(room=st.integers(0, 2_000), most=st.integers(1, 1_024), trials=st.integers(0, 30))
def test_the_room_lies_between_the_bounds_whenever_the_search_ends(
    room: int, most: int, trials: int
) -> None:
    good, bad, tried = 0, most + 1, []
    for _ in range(trials):
        count = next_count(good, bad, most)
        if count is None:
            break
        assert good < count < bad
        tried.append(count)
        good, bad = (count, bad) if count <= room else (good, count)
    assert good <= min(room, most) < bad
    assert len(tried) == len(set(tried)) <= 22
    if trials >= 22:
        assert good == min(room, most)


def test_a_search_doubles_until_one_fails_and_then_halves() -> None:
    assert [next_count(good, 513, 512) for good in (0, 1, 2, 64, 300, 512)] == [
        1, 2, 4, 128, 512, None,
    ]  # fmt: skip
    assert [next_count(64, bad, 512) for bad in (128, 96, 66, 65)] == [96, 80, 65, None]


def test_what_was_found_is_said_as_it_is() -> None:
    found = Search(512)
    assert found.describe().startswith("0 live calls, the most that were tried")
    found.good, found.bad = 90, 96
    assert found.describe().endswith("90 live calls without an underrun, 96 with some"
                                     " (the search was ended by its time)")  # fmt: skip
    found.good = 95
    assert found.describe() == "95 live calls without an underrun, 96 with some"
