import pytest

from benchmarks.figures import Figure, percentile, shown


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0834, "0.083"), (0.1, "0.1"), (1.254, "1.25"), (1.5, "1.5"), (27.94, "27.9"), (15_000, "15,000")],
)
def test_numbers_have_three_digits_or_so(value: float, text: str) -> None:
    assert shown(value) == text


def test_a_target_from_above_is_met_by_less() -> None:
    figure = Figure("seconds", "", "s", target=2)
    assert figure.bound == "≤ 2 s"
    assert [figure.verdict(values) for values in ([1, 2, 9], [3], [])] == ["met", "missed", "not measured"]
    assert figure.share_of_target(3) == 1.5


def test_a_target_from_below_is_met_by_more() -> None:
    figure = Figure("steps_per_s", "", "steps/s", target=100, at_least=True)
    assert figure.bound == "≥ 100 steps/s"
    assert [figure.verdict(values) for values in ([100], [99])] == ["met", "missed"]
    assert figure.share_of_target(50) == 2


def test_a_figure_without_target_is_not_judged() -> None:
    assert Figure("seconds", "", "s").verdict([1]) == ""


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert percentile([4, 1, 3, 2], 100) == 4
    assert percentile(range(101), 99) == 99
