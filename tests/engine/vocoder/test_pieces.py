"""How the vocoder's work is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.vocoder.graphs import round_rows
from antiphon.engine.vocoder.pieces import CAPTURED_SIZES, MOST_FRAMES, Pieces

LOOK_AHEAD = 7


def cut(pieces: Pieces, frames: int, *, final: bool) -> list[int]:
    made: list[int] = []
    while size := pieces.next(frames - sum(made), LOOK_AHEAD, final=final):
        made.append(size)
    return made


@given(
    frames=st.integers(-10, 3000),
    final=st.booleans(),
    pieces=st.sampled_from([Pieces(), Pieces(most=9), Pieces(CAPTURED_SIZES)]),
)
def test_pieces_make_all_of_it_and_leave_each_its_look_ahead(
    frames: int, final: bool, pieces: Pieces
) -> None:
    made = cut(pieces, frames, final=final)
    assert sum(made) == max(0, frames)
    assert all(0 < size <= max(pieces.most, LOOK_AHEAD) for size in made)
    if final:
        assert all(frames - sum(made[:n]) >= LOOK_AHEAD for n in range(1, len(made)))


@given(frames=st.integers(1, 3000), final=st.booleans())
def test_only_lengths_that_are_captured_occur(frames: int, final: bool) -> None:
    made = cut(Pieces(CAPTURED_SIZES), frames, final=final)
    ends = made[-1:] if final else []
    assert set(made[: len(made) - len(ends)]) <= set(CAPTURED_SIZES)
    assert all(end <= LOOK_AHEAD for end in ends)
    assert len(made) <= frames // 100 + 6 + final


def test_a_chunk_is_one_call_and_short_speech_on_a_cpu_too() -> None:
    assert cut(Pieces(CAPTURED_SIZES), 50, final=False) == [50]
    assert cut(Pieces(CAPTURED_SIZES), 9, final=False) == [8, 1]
    for frames in (1, 8, 50, MOST_FRAMES):
        for final in (False, True):
            assert cut(Pieces(), frames, final=final) == [frames]


@given(room=st.integers(0, 200), frames=st.integers(1, 500), final=st.booleans())
def test_room_is_kept(room: int, frames: int, final: bool) -> None:
    for pieces in (Pieces(), Pieces(CAPTURED_SIZES)):
        size = pieces.next(frames, LOOK_AHEAD, final=final, room=room)
        # What has no more than the look-ahead left ends in one piece: it cannot be cut.
        assert size <= room or (final and 0 < frames <= LOOK_AHEAD and size == frames)


@given(count=st.integers(1, 4096))
def test_rows_are_rounded_up_to_a_power_of_two(count: int) -> None:
    rounded = round_rows(count)
    assert count <= rounded < 2 * count
    assert rounded & (rounded - 1) == 0
