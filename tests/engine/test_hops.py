import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.acoustic.interface import CHUNK_TOKENS, LOOK_AHEAD_TOKENS
from antiphon.engine.errors import InvalidConfiguration, InvalidRequest
from antiphon.engine.hops import LARGEST_HOP, SMALLEST_HOP, HopPlan, HopSettings

settings = st.builds(
    lambda first, more, growth, margin: HopSettings(
        first_hop=first, max_hop=min(first + more, LARGEST_HOP), growth=growth, margin_s=margin
    ),
    st.integers(SMALLEST_HOP, 60),
    st.integers(0, 100),
    st.floats(1.0, 4.0),
    st.floats(0.0, 5.0),
)


@given(settings, st.lists(st.floats(0.1, 1.0), max_size=40))
def test_hops_stay_in_bounds_and_meet_the_chunks(chosen: HopSettings, shares: list[float]) -> None:
    plan = HopPlan(chosen)
    assert plan.wanted() == chosen.first_hop + LOOK_AHEAD_TOKENS
    given = 0
    for number, share in enumerate([1.0, *shares]):
        wanted = plan.wanted()
        assert 1 <= wanted <= chosen.max_hop + (LOOK_AHEAD_TOKENS if number == 0 else 0)
        if number and wanted >= CHUNK_TOKENS:
            assert (given + wanted) % CHUNK_TOKENS == 0
        given += max(1, int(wanted * share))
        plan.took(max(1, int(wanted * share)))


def test_the_default_schedule_recomputes_nothing_after_its_first_chunk() -> None:
    plan = HopPlan(HopSettings())
    hops = []
    for _ in range(4):
        hops.append(plan.wanted())
        plan.took(hops[-1])
    assert hops == [11, 14, 25, 25]


@given(settings)
def test_the_first_hop_waits_for_all_its_tokens(chosen: HopSettings) -> None:
    plan = HopPlan(chosen)
    assert plan.patience_s(None, now=100.0) is None
    assert plan.patience_s(100.0, now=100.0) is None
    plan.took(chosen.first_hop)
    assert plan.patience_s(100.0, now=100.0) == 0.0


def test_two_plans_share_nothing() -> None:
    chosen = HopSettings()
    first, second = HopPlan(chosen), HopPlan(chosen)
    first.took(40)
    assert second.wanted() == chosen.first_hop + LOOK_AHEAD_TOKENS


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("first_hop", {"first_hop": 0}),
        ("first_hop", {"first_hop": -3}),
        ("first_hop", {"first_hop": 4}),
        ("first_hop", {"first_hop": 10_000}),
        ("max_hop", {"first_hop": 20, "max_hop": 10}),
        ("growth", {"growth": 0.5}),
        ("margin_s", {"margin_s": -1.0}),
    ],
)
def test_a_bad_value_is_refused_by_name(field: str, values: dict[str, float]) -> None:
    with pytest.raises(InvalidConfiguration) as error:
        HopSettings(**values)  # type: ignore[arg-type]
    assert error.value.field == field


HOPS = st.none() | st.integers(SMALLEST_HOP, LARGEST_HOP)


@given(settings, HOPS, HOPS)
def test_a_request_lies_over_the_deployment_or_is_refused_by_name(
    own: HopSettings, first: int | None, most: int | None
) -> None:
    resolved = (first or own.first_hop, most or own.max_hop)
    if resolved[0] <= resolved[1]:
        asked = own.asked(first, most, None)
        assert (asked.first_hop, asked.max_hop) == resolved
        assert (asked.growth, asked.margin_s) == (own.growth, own.margin_s)
        return
    with pytest.raises(InvalidRequest) as refused:
        own.asked(first, most, None)
    named = "max_hop" if first is None else "first_hop"
    assert refused.value.field == named
    assert refused.value.limit == resolved[0 if named == "max_hop" else 1]
