"""Rows of the vocoder: alone, in any batch, captured or not, the same samples."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.acoustic.decoder import Portion
from antiphon.engine.acoustic.speech import SpeechState, Vocoder
from antiphon.engine.vocoder import graphs
from antiphon.engine.vocoder.graphs import BatchedRows, Result, directly
from antiphon.engine.vocoder.hift import HiFT
from antiphon.engine.vocoder.pieces import CAPTURED_SIZES, Pieces
from antiphon.engine.vocoder.rows import OneByOne, Row, RowAdvance, StateLayout
from tests import golden
from tests.engine.acoustic import models

EXACT = 1e-4
FRAMES = 70
MEL = golden.array(3, "hift", "mel").transpose(1, 2)[0].repeat(3, 1)[:FRAMES]


def _record_on_cpu(call: Callable[[], Result]) -> Callable[[], Result]:
    """What a graph does: run again on the inputs' memory, into the same results' memory."""
    kept = [tensor.clone() for tensor in call()]

    def replay() -> Result:
        for target, source in zip(kept, call(), strict=True):
            target.copy_(source)
        samples, single, double = kept
        return samples, single, double

    return replay


class _Counting:
    """Calls by rows."""

    def __init__(self, inner: RowAdvance) -> None:
        self.inner = inner
        self.rows: list[int] = []

    def __call__(self, rows: list[Row], *, final: bool) -> tuple[torch.Tensor, list[object]]:
        self.rows.append(len(rows))
        return self.inner(rows, final=final)  # type: ignore[return-value]


def _vocoder(advance: RowAdvance, *sizes: int) -> Vocoder:
    return Vocoder(models.hift(), models.source_noise(), advance, Pieces(sizes))


def _speak(vocoder: Vocoder, mels: list[torch.Tensor], hops: list[int]) -> list[torch.Tensor]:
    """Stream `number` is given its mel in hops of `hops[number]` frames, all at once in turn."""
    states = [vocoder.start() for _ in mels]
    heard: list[list[torch.Tensor]] = [[] for _ in mels]
    given = [0] * len(mels)
    open_streams = set(range(len(mels)))
    while open_streams:
        asked: list[int] = sorted(open_streams)
        pairs: list[tuple[SpeechState, bool]] = []
        for number in asked:
            stop = min(len(mels[number]), given[number] + hops[number])
            if stop > given[number]:
                piece = mels[number][given[number] : stop]
                states[number] = vocoder.place(states[number], given[number], piece)
            given[number] = stop
            pairs.append((states[number], stop == len(mels[number])))
        portions = vocoder.speak(pairs)
        for number, (_, final), portion in zip(asked, pairs, portions, strict=True):
            assert isinstance(portion, Portion)
            states[number] = portion.state
            heard[number].append(torch.from_numpy(portion.samples))
            if final and portion.done:
                open_streams.remove(number)
    return [torch.cat(pieces) for pieces in heard]


def _mels(count: int) -> list[torch.Tensor]:
    # Each another stretch, level and length.
    return [MEL.roll(5 * n, 0)[: FRAMES - 3 * n] - 0.1 * n for n in range(count)]


@settings(max_examples=8, deadline=None)
@given(
    hops=st.lists(st.integers(3, 60), min_size=1, max_size=5),
    sizes=st.sampled_from([(), CAPTURED_SIZES, (1, 3)]),
    record=st.sampled_from([directly, _record_on_cpu]),
)
def test_rows_in_any_batch_are_those_of_the_whole_mel(
    hops: list[int], sizes: tuple[int, ...], record: graphs.Record
) -> None:
    mels = _mels(len(hops))
    alone = _vocoder(OneByOne(models.hift()))
    together = _vocoder(BatchedRows(models.hift(), record), *sizes)
    spoken = _speak(together, mels, hops)
    for mel, samples in zip(mels, spoken, strict=True):
        (whole,) = _speak(alone, [mel], [len(mel)])
        assert samples.shape == whole.shape
        assert (samples - whole).abs().max() <= EXACT


def test_streams_with_pieces_of_one_length_share_calls() -> None:
    counting = _Counting(BatchedRows(models.hift(), directly))
    mels = [MEL, MEL + 0.1, MEL - 0.1, MEL[:60]]
    _speak(_vocoder(counting, *CAPTURED_SIZES), mels, [57, 57, 57, 60])
    # The last one ends: its first 50 frames are as good as the others'.
    assert counting.rows[0] == 4
    assert len(counting.rows) < 12


def test_more_streams_than_a_call_takes_are_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MOST_ROWS", 2)
    mels = [MEL[:30] + 0.05 * number for number in range(5)]
    one, other = (
        _speak(_vocoder(advance), mels, [20] * 5)
        for advance in (OneByOne(models.hift()), BatchedRows(models.hift(), directly))
    )
    for expected, samples in zip(one, other, strict=True):
        assert (samples - expected).abs().max() <= EXACT


def test_only_so_many_shapes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MOST_SHAPES", 3)
    batched = BatchedRows(models.hift(), _record_on_cpu)
    (samples,) = _speak(_vocoder(batched, *CAPTURED_SIZES), [MEL], [23])
    assert len(batched._captured) == 3
    (expected,) = _speak(_vocoder(OneByOne(models.hift())), [MEL], [23])
    assert (samples - expected).abs().max() <= EXACT


def test_samples_that_are_not_finite_end_one_stream_alone() -> None:
    vocoder = _vocoder(BatchedRows(models.hift(), directly))
    bad = MEL.clone()
    bad[10] = torch.nan
    states = [vocoder.place(vocoder.start(), 0, mel) for mel in (MEL, bad, MEL + 0.1)]
    portions = vocoder.speak([(state, True) for state in states])
    assert [isinstance(portion, Portion) for portion in portions] == [True, False, True]
    (expected,) = _speak(_vocoder(OneByOne(models.hift())), [MEL], [FRAMES])
    assert isinstance(portions[0], Portion)
    assert (torch.from_numpy(portions[0].samples) - expected).abs().max() <= EXACT


def test_a_packed_state_is_the_state() -> None:
    hift = models.hift()
    noise = models.source_noise().draw(models.source_noise().start, 480 * 63 + 8)[0]
    rows = torch.stack([MEL, MEL + 0.2])
    _, state = hift.advance(rows, noise.expand(2, -1, -1), None, final=False)
    layout = StateLayout.of(state)
    single, double = layout.pack(state)
    assert [single.shape[1], double.shape[1]] == list(layout.sizes())
    assert single.nbytes + double.nbytes == state.nbytes
    again = layout.unpack(single, double)
    for name in ("cycles", "source", "spectrum", "overlap"):
        assert torch.equal(getattr(again, name), getattr(state, name))
    for name in ("f0_tails", "conv_tails"):
        pairs = zip(getattr(again, name), getattr(state, name), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_graphs_on_a_gpu_give_the_samples_of_the_cpu() -> None:
    checkpoint = models.checkpoint()
    hift = HiFT(checkpoint.hift_config)
    hift.load_state_dict(checkpoint.hift_state_dict(), strict=True)
    hift.prepare_for_serving().cuda()
    vocoder = Vocoder(hift, models.source_noise(), BatchedRows(hift), Pieces(CAPTURED_SIZES))
    mels = [mel.cuda() for mel in _mels(3)]
    for _ in range(2):  # captured, then replayed
        spoken = _speak(vocoder, mels, [9, 50, 23])
    for mel, samples in zip(mels, spoken, strict=True):
        (whole,) = _speak(_vocoder(OneByOne(models.hift())), [mel.cpu()], [FRAMES])
        # Phase integrates what kernels of another device round differently.
        assert (samples - whole).abs().mean() <= 1e-3
