"""The account of the night before, and what older nights left."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from policies.estimation.estimators import rate
from policies.history import history
from policies.history.page_state import Forgetting, PageState, evidence
from policies.judging.calibration import FACTORS, FreshSums, JudgedSums
from transforms.kept.carrying import read_previous_file
from transforms.kept.errors import StateError
from transforms.kept.judging import Judged, account, drift_warnings, forecast_of
from transforms.kept.state import times
from transforms.kept.statistics import slots_schema

DAY_US = 86_400_000_000
ONE = 2**32  # units of a probability


def _slots(columns: int = 6) -> pa.RecordBatch:
    hashes = pa.array([5, 7, 9], pa.uint64())
    rates = [pa.array([v, v, v], pa.float32()) for v in (0.5, 3.0, 2.0)]
    values = [hashes, hashes, times(np.full(3, 10 * DAY_US)), *rates]
    return pa.RecordBatch.from_arrays(values[:columns], schema=pa.schema(list(slots_schema())[:columns]))


def _nothing_known(n: int) -> tuple[PageState, Forgetting, int]:
    return PageState.empty(n), Forgetting(), 0


def test_nights_of_before_these_columns_are_read_and_predict_nothing(tmp_path):
    path = str(tmp_path / "shard-00000-of-00001.parquet")
    pq.write_table(pa.Table.from_batches([_slots(3)]), path)
    (batch,) = read_previous_file(("slots/pages", path))
    assert batch.column("signal_source").null_count == 3
    assert batch.schema.equals(slots_schema(), check_metadata=True)
    forecast = forecast_of(pa.Table.from_batches([batch]), np.array([0, 1, 2]), *_nothing_known(3))
    assert list(forecast.row) == [-1, -1, -1]


@pytest.mark.parametrize("columns", [2, 1])
def test_nights_that_lack_other_columns_are_refused(tmp_path, columns):
    path = str(tmp_path / "shard-00000-of-00001.parquet")
    pq.write_table(pa.Table.from_batches([_slots(columns)]), path)
    with pytest.raises(StateError, match="missing last_slot_at"):
        list(read_previous_file(("slots/pages", path)))


def test_forecasts_find_their_pages():
    slots = pa.Table.from_batches([_slots()])
    slots = slots.append_column("unsignalled_rate_per_day", pa.nulls(3, pa.float32()))
    forecast = forecast_of(slots, np.array([3, -1, 0]), *_nothing_known(5))
    assert list(forecast.row) == [2, -1, -1, 0, -1]
    assert list(forecast.change_rate_per_day) == [0.5] * 3
    assert list(forecast_of(None, None, *_nothing_known(2)).row) == [-1, -1]


def test_a_page_that_changed_at_every_long_visit_will_have_changed_again() -> None:
    """Three of three at gaps of 30 days under a diffuse prior: exactly .945, by mode and information .714."""
    visits = history.Observations(
        page=np.zeros(4, np.int64),
        fetched_at_us=np.arange(4) * 30 * DAY_US,
        status=np.full(4, 200, np.int16),
        digest=np.arange(1, 5).astype(np.uint64),
    )
    state, _ = history.fold(PageState.empty(1), visits, 100 * DAY_US)
    found, information = rate(evidence(state), 0.1, 0.1)
    slots = pa.table(
        {
            "change_rate_per_day": pa.array(found, pa.float32()),
            "information": pa.array(information, pa.float32()),
            "weight": [1.0],
            "unsignalled_rate_per_day": pa.nulls(1, pa.float32()),
        }
    )
    forecast = forecast_of(slots, np.array([0]), state, Forgetting(), 100 * DAY_US)
    unchanged = np.exp(forecast.log_unchanged(np.array([0]), np.array([30.0])))
    assert unchanged == pytest.approx(0.0551, abs=0.001)
    told = slots.set_column(3, "unsignalled_rate_per_day", pa.array([0.1], pa.float32()))
    by_signals = forecast_of(told, np.array([0]), state, Forgetting(), 100 * DAY_US)
    unchanged = np.exp(by_signals.log_unchanged(np.array([0]), np.array([30.0])))
    assert unchanged == pytest.approx(0.286, abs=0.001)


def _judged(crawls: int, predicted: int, found: int, host: str = "a.test") -> Judged:
    """Crawls that all were predicted the same, on one host."""
    p = predicted / crawls
    sums = found, predicted, crawls * (1 - (1 - p) ** 2) - predicted
    at = tuple(crawls if i == int(10 * p) else 0 for i in range(10))
    return Judged(
        JudgedSums(
            not_scheduled=3,
            bin_crawls=at,
            bin_predicted=tuple(predicted * ONE if n else 0 for n in at),
            bin_found=tuple(found if n else 0 for n in at),
            predicted_at=tuple(round(crawls * (1 - (1 - p) ** f) * ONE) for f in FACTORS),
            variance=round(crawls * p * (1 - p) * ONE),
            brier=round((found * (1 - p) ** 2 + (crawls - found) * p**2) * ONE),
            hosts=1,
            products=tuple(round(a * b * 2**20) for a, b in combinations_with_replacement(sums, 2)),
            time=FreshSums(100, 80, 70, 60, 90),
            requests=FreshSums(200, 150, 140, 100, 190),
        ),
        ((host, crawls, float(predicted), found),),
    )


def _night(day: int, judged: Judged, previous: dict, days: int = 1) -> dict:
    """The parts of a manifest that the next night looks at."""
    previous = {"options": {"as_of_us": (day - days) * DAY_US}, **previous}
    return {
        "judged": account(judged, {"failed": 4, "late": 1}, previous, day * DAY_US),
        "expected_freshness": 0.8,
        "expected_freshness_crawled": 0.9,
        "options": {"as_of_us": day * DAY_US},
    }


def test_the_account_of_two_shards():
    one, other = _judged(1000, 300, 320), _judged(500, 100, 80, "b.test")
    judged = _night(9, one.merge(other), {"expected_freshness_crawled": 0.7, "expected_freshness": 0.6})[
        "judged"
    ]
    assert (judged["crawls"], judged["changes_found"], judged["changes_predicted"]) == (1500, 400, 400.0)
    assert judged["ratio"] == 1.0 and judged["z"] == 0.0
    assert judged["not_judged"]["not_scheduled"] == 6
    assert judged["not_judged"]["failed"] == 4 and judged["not_judged"]["baseline"] == 0
    assert judged["brier"] == pytest.approx((320 * 0.49 + 680 * 0.09 + 80 * 0.64 + 420 * 0.04) / 1500)
    assert judged["brier_of_base_rate"] == pytest.approx(400 / 1500 * 1100 / 1500)
    assert judged["brier_skill"] == pytest.approx(1 - judged["brier"] / judged["brier_of_base_rate"])
    assert judged["freshness"] == {
        "predicted": 0.75,
        "realised": 0.7,
        "at_least": 0.5,
        "at_most": 0.95,
        "promised": 0.7,
        "promised_all_pages": 0.6,
    }
    assert judged["freshness_of_time"]["realised"] == 0.7
    assert [h["host"] for h in judged["hosts"]] == ["a.test", "b.test"]
    assert judged["reliability"][3] == {
        "from": 0.3,
        "to": 0.4,
        "crawls": 1000,
        "predicted": 300.0,
        "found": 320,
    }
    assert other.merge(one) == one.merge(other)


def test_without_a_night_before_nothing_is_judged():
    judged = account(Judged(JudgedSums(not_scheduled=12)), {}, {}, 9 * DAY_US)
    assert judged["crawls"] == 0 and judged["nights"] == [] and judged["not_judged"]["not_scheduled"] == 12
    assert judged["ratio"] is None and judged["brier"] is None
    assert judged["freshness"]["realised"] is None
    assert drift_warnings(judged) == []


def test_a_drift_needs_a_whole_week_or_a_breakdown():
    """A third too few for six nights is no warning, for seven it is; nothing at all is one at once."""
    manifest: dict = {}
    for day in range(1, 9):
        manifest = _night(day, _judged(2000, 600, 400), manifest)
        warned = drift_warnings(manifest["judged"])
        assert bool(warned) == (day >= 7)
    (text,) = warned
    assert "2,800 changes found in the last 7 days, 4,200 predicted: pages change 0." in text
    # A third less is what pages do that age; a crawler that is blocked finds next to nothing.
    assert text.index("as they age") < text.index("if there are few, set --half_life")
    assert "blocked" not in text
    assert "most on a.test" in text and len(text.split()) <= 50
    (text,) = drift_warnings(_night(1, _judged(2000, 600, 10), {})["judged"])
    assert "10 changes found tonight, 600 predicted" in text
    assert text.index("as they age") < text.index("if there are few") < text.index("blocked")


def test_the_nights_of_a_week_that_is_not_over_warn_together():
    """Sixty crawls say too little; those of two nights are enough for a breakdown."""
    first = _night(1, _judged(60, 18, 56), {})
    assert drift_warnings(first["judged"]) == []
    second = _night(2, _judged(60, 18, 56), first)
    (text,) = drift_warnings(second["judged"])
    assert "112 changes found in the last 2 days, 36 predicted" in text
    assert second["judged"]["bounds"]["week"] == second["judged"]["bounds"]["night"]


def test_a_night_of_a_week_is_a_week():
    manifest = _night(30, _judged(2000, 600, 400), {}, days=8)
    assert drift_warnings(manifest["judged"])
    manifest = _night(31, _judged(2000, 600, 600), manifest)
    assert [n["days"] for n in manifest["judged"]["nights"]] == [8.0, 1.0]
    manifest = _night(38, _judged(2000, 600, 600), manifest, days=7)
    assert len(manifest["judged"]["nights"]) == 1


def test_a_night_run_again_does_not_count_itself():
    """With its own state, which is a mistake that has a warning of its own."""
    manifest = _night(5, _judged(2000, 600, 400), {})
    again = account(_judged(2000, 600, 400), {}, manifest, 5 * DAY_US)
    assert again["nights"] == [] and again["week"]["days"] == 0.0
