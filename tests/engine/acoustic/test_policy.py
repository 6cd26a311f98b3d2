"""Who goes next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.acoustic.policy import BatchLimits, Demand, choose

ONE = BatchLimits(rows=2, free_rows=2, urgent_s=0.0)
GPU = BatchLimits(rows=64, free_rows=32, urgent_s=0.2)


def test_nothing_to_do() -> None:
    choice = choose([], 0.0, ONE)
    assert choice.keys == ()
    assert choice.wake_at is None


def test_who_has_heard_nothing_comes_before_who_still_has_audio() -> None:
    speaking = Demand(1, asked_at=0.0, deadline=10.5)
    silent = Demand(2, asked_at=9.9)
    assert choose([speaking, silent], 10.0, ONE).keys == (2,)


def test_the_oldest_of_the_silent_first() -> None:
    demands = [Demand(key, asked_at=5.0 - key) for key in range(4)]
    assert choose(demands, 10.0, ONE).keys == (3,)


def test_who_runs_dry_first_goes_first() -> None:
    demands = [Demand(1, 0.0, deadline=12.0), Demand(2, 0.0, deadline=11.0)]
    assert choose(demands, 10.0, ONE).keys == (2,)


def test_a_paced_listener_waits_until_the_lead_and_the_worker_knows_when_to_wake() -> None:
    paced = Demand(1, asked_at=0.0, deadline=20.0, lead_s=1.5)
    choice = choose([paced], 10.0, ONE)
    assert choice.keys == ()
    assert choice.wake_at == 18.5
    assert choose([paced], 18.5, ONE).keys == (1,)


def test_a_paced_listener_who_heard_nothing_does_not_wait() -> None:
    assert choose([Demand(1, 0.0, None, lead_s=1.5)], 0.0, ONE).keys == (1,)


def test_idle_capacity_computes_ahead_but_not_at_the_cost_of_the_urgent() -> None:
    urgent = Demand(1, 0.0, deadline=10.1)
    ahead = [Demand(key, 0.0, deadline=30.0 + key) for key in range(2, 30)]
    assert choose([urgent, *ahead], 10.0, ONE).keys == (1,)
    assert choose(ahead, 10.0, ONE).keys == (2,)
    assert len(choose([urgent, *ahead], 10.0, GPU).keys) == 16


def test_beyond_the_free_rows_only_the_urgent_join() -> None:
    demands = [Demand(key, 0.0, deadline=10.1) for key in range(20)]
    demands += [Demand(key, 0.0, deadline=20.0) for key in range(20, 40)]
    assert choose(demands, 10.0, GPU).keys == tuple(range(20))


@given(
    st.lists(
        st.tuples(
            st.floats(0, 10), st.none() | st.floats(0, 30), st.none() | st.floats(0, 5),
            st.sampled_from([1, 2]),
        ),
        max_size=30,
    ),
    st.integers(2, 20),
    st.integers(1, 20),
)  # fmt: skip
def test_never_idle_with_work_never_over_the_limit(
    raw: list[tuple[float, float | None, float | None, int]], rows: int, free: int
) -> None:
    demands = [Demand(key, *values) for key, values in enumerate(raw)]
    choice = choose(demands, 10.0, BatchLimits(rows, 0.2, min(free, rows)))
    by_key = {demand.key: demand for demand in demands}
    assert sum(by_key[key].rows for key in choice.keys) <= rows
    assert len(set(choice.keys)) == len(choice.keys)
    assert bool(choice.keys) == any(demand.starts_at <= 10.0 for demand in demands)
    taken = [by_key[key].due for key in choice.keys]
    left = [d.due for d in demands if d.key not in choice.keys and d.starts_at <= 10.0]
    assert not taken or not left or max(taken) <= min(left)


def test_nobody_starves_behind_an_endless_row_of_newcomers() -> None:
    """Newcomers arrive faster than they can be served; the listener is served all the same."""
    waiting = [Demand(0, asked_at=0.0, deadline=1.0)]
    key = 1
    for tick in range(200):
        now = tick * 0.1
        waiting += [Demand(key, now), Demand(key + 1, now)]
        key += 2
        chosen = choose(waiting, now, ONE).keys
        waiting = [demand for demand in waiting if demand.key not in chosen]
        if all(demand.key != 0 for demand in waiting):
            break
    assert all(demand.key != 0 for demand in waiting)
    assert now < 2.5
