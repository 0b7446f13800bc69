"""`report.html`: what it says is what the night has, it needs nothing else, and it cannot fail a night."""

from __future__ import annotations

import os
import re
import shutil

import numpy as np
import pytest

from pipelines.store import metrics_and_page
from pipelines.webpage.dots import Dot, Dots
from pipelines.webpage.parts import HEIGHT, WIDTH, Chart, Line, Table, count
from tests.pipelines.jobs import Night, at, command, crawls, nightly, seen
from tests.pipelines.stores import Stored, midnight
from tests.pipelines.webpage.reading import Element, check_page, read, table, tiles
from transforms.finished import figures as figures_of
from transforms.finished.opened import OpenNight

HOSTS = ("https://shop.test", "https://news.test", "https://docs.test")
HOSTILE = "<script>alert(1)</script>"


def _logs(store: Stored) -> None:
    """Four days of three hosts, pages of which change from never to daily; the last days with bad rows."""
    for day in range(4):
        rows = [
            seen(f"{host}/{i}", at(day, 1 + i % 20), "ABCDEFGH"[(day + i) // (1 + i % 4) % 8])
            for host in HOSTS
            for i in range(30)
        ]
        bad = [seen(f"no url {HOSTILE}", at(day, 2)), seen(HOSTS[0], "yesterday")] * (day >= 2)
        store.log(f"logs/{day}.jsonl", [*rows, *bad], at(day, 23))
    asked = [
        {"url": f"{host}/{i}", "day": at(0)[:10], "clicks": 1 + i % 7 * 5}
        for host in HOSTS
        for i in range(29)
    ]
    store.log("requests.jsonl", asked, at(1))
    store.log("hosts.jsonl", [{"host": "docs.test", "max_per_day": 4}])


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> list[Night]:
    folder = tmp_path_factory.mktemp("report")
    options = {"requests": folder / "requests.jsonl", "hosts": folder / "hosts.jsonl", "budget": 40}
    store = Stored(folder, options=options)
    _logs(store)
    found = [store.run(midnight(day)) for day in (2, 3, 4)]
    assert [night.code for night in found] == [0, 0, 0], [night.complaints for night in found]
    return found


def _text(night: Night) -> str:
    return (night.folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(nights: list[Night]) -> Element:
    return read(_text(nights[-1]))


def test_every_page_stands_alone_and_is_in_order(nights):
    for night in nights:
        check_page(_text(night))


def test_its_large_figures_are_those_of_the_manifest(nights, page):
    manifest, shown = nights[-1].manifest, tiles(page)
    judged = manifest["judged"]
    assert judged["crawls"] > 30
    assert shown["Expected freshness"] == manifest["expected_freshness"]
    assert shown["With one rate for all pages"] == manifest["expected_freshness_uniform"]
    assert shown["Crawls a day"] == manifest["allocated_per_day"]
    assert shown["Pages"] == manifest["counters"]["pages_known"] == 90
    assert shown["Crawls scheduled"] == manifest["counters"]["slots_used"]
    assert shown["Promised"] == judged["freshness"]["predicted"]
    assert shown["Found"] == judged["freshness"]["realised"]
    assert shown["Found over predicted"] == judged["ratio"]


def test_its_tables_add_up_to_the_manifest(nights, page):
    manifest = nights[-1].manifest
    counters = manifest["counters"]
    for caption in ("By what bounds", "Hosts with most crawls"):
        rows = table(page, caption)
        assert sum(row["pages"] for row in rows) == counters["pages_known"]
        assert sum(row["crawls a day"] for row in rows) == pytest.approx(manifest["allocated_per_day"])
        assert sum(row["asked for, no crawl"] for row in rows) == manifest["starved"]["pages"]
        assert sum(row["of all crawls"] for row in rows) == pytest.approx(1.0)
        weights = [row["of all clicks a day"] for row in rows]
        fresh = [row["expected freshness"] or 0.0 for row in rows if row["expected freshness"] != "–"]
        kept = [w * f for w, f in zip([w for w in weights if w], fresh, strict=True)]
        assert sum(kept) == pytest.approx(manifest["expected_freshness"])
    assert sum(row["slots tonight"] for row in table(page, "Hosts with")) == counters["slots_used"]
    assert sum(row["crawls"] for row in table(page, "Crawls by hour")) == counters["slots_used"]
    assert sum(row["crawls"] for row in table(page, "Why crawls are scheduled")) == counters["slots_used"]
    bins = [b for b in manifest["judged"]["reliability"] if b["crawls"]]
    shown = table(page, "Crawls by the predicted")
    assert [row["crawls"] for row in shown] == [b["crawls"] for b in bins]
    assert [row["changed"] for row in shown] == [b["found"] / b["crawls"] for b in bins]
    rejected = {row["reason"]: row["rows"] for row in table(page, "Why rows were rejected")}
    mark = "observations_rejected_"
    assert rejected == {
        name.removeprefix(mark).replace("_", " "): n
        for name, n in counters.items()
        if name.startswith(mark) and n
    }
    assert sum(rejected.values()) == 2


def test_causes_of_what_moved_add_up_to_the_budget(nights, page):
    before, after = (night.manifest["allocated_per_day"] for night in nights[1:])
    rows = table(page, "Why crawl rates moved")
    assert sum(row["net"] for row in rows) == pytest.approx(after - before, abs=1e-3)
    assert sum(row["up"] for row in rows) > 0.1
    assert "What moved" not in _text(nights[0])


def test_the_curve_goes_through_the_night_and_bends_down(nights, page):
    rows = table(page, "Expected freshness by budget")
    budget, fresh = (np.array([row[n] for row in rows]) for n in ("crawls a day", "expected freshness"))
    (now,) = np.flatnonzero(budget == 40)
    assert fresh[now] == pytest.approx(nights[-1].manifest["expected_freshness"], abs=1e-6)
    slope = np.diff(fresh) / np.diff(budget)
    assert (slope > 0.0).all() and (np.diff(slope) < 1e-9).all()
    price = nights[-1].manifest["multiplier"]
    weight = sum(row["weight"] for row in nights[-1].rows("pages"))
    assert slope[now] * weight <= price * (1 + 1e-6) <= slope[now - 1] * weight * (1 + 1e-5)
    (chart,) = (f for f in page.all("figure") if "Freshness by budget" in f.text)
    (ring,) = (c for c in chart.all("circle") if c.attributes["class"] == "ring")
    dots = [c for c in chart.all("circle") if c.attributes["class"] == "dot"]
    assert [float(ring.attributes[xy] or 0) for xy in ("cx", "cy")] in [
        [float(dot.attributes[xy] or 0) for xy in ("cx", "cy")] for dot in dots
    ]


def test_a_sample_of_the_pages_gives_nearly_the_same_curve(nights, monkeypatch):
    night = OpenNight.open(str(nights[-1].folder))
    whole = figures_of.figures(night)
    monkeypatch.setattr(figures_of, "MOST_PAGES", 45)
    half = figures_of.figures(night)
    assert (whole.sampled, half.sampled) == (90, 45)
    assert np.abs(half.freshness - whole.freshness).max() < 0.1
    assert half.by_limit.equals(whole.by_limit) and half.hosts.equals(whole.hosts)


def test_the_same_night_gives_the_same_bytes_wherever_it_lies(nights, tmp_path):
    root = nights[-1].folder.parents[1]
    shutil.copytree(root, tmp_path / "moved", symlinks=True)
    moved = tmp_path / "moved" / "nights" / nights[-1].folder.name
    (moved / "report.html").unlink()
    code, said, complaints = command("report", str(moved))
    assert (code, said, complaints) == (0, f"{moved}/report.html\n", "")
    assert (moved / "report.html").read_text(encoding="utf-8") == _text(nights[-1])
    assert str(root) not in _text(nights[-1]) and str(root.parent) not in _text(nights[-1])


def test_what_pages_are_called_is_text(nights):
    for night in nights[1:]:
        text = _text(night)
        assert HOSTILE not in text
        samples = [row["sample"] for row in table(read(text), "Some of them")]
        assert any(HOSTILE in sample for sample in samples)


def test_a_store_has_trends_of_its_nights(nights, tmp_path):
    file = tmp_path / "all.html"
    code, _, complaints = command("report", str(nights[0].folder.parents[1]), "--output", str(file))
    assert (code, complaints) == (0, "")
    found = check_page(file.read_text(encoding="utf-8"))
    rows = table(found, "Nights")
    assert [row["night"] for row in rows] == ["2026-06-03", "2026-06-04", "2026-06-05"]
    for row, night in zip(rows, nights, strict=True):
        manifest = night.manifest
        assert row["expected freshness"] == manifest["expected_freshness"]
        assert row["slots"] == manifest["counters"]["slots_used"]
        assert row["warnings"] == len(manifest["warnings"])
        realised = (manifest["judged"].get("freshness") or {}).get("realised")
        assert row["found"] == ("–" if realised is None else realised)
        counters = manifest["counters"]
        lost, kept = (
            sum(n for k, n in counters.items() if k.endswith(end)) for end in ("_rejected", "_accepted")
        )
        assert row["rejected rows"] == lost / (lost + kept) > 0.0
    # What is expected is a line in its range; what crawls have found has bars, and is not joined.
    (chart,) = (f for f in found.all("figure") if "Expected is of all pages" in f.text)
    (line,), (band,) = chart.all("polyline"), chart.all("polygon")
    assert [len((e.attributes["points"] or "").split()) for e in (line, band)] == [3, 6]
    judged = sum(row["found"] != "–" for row in rows)
    assert len([c for c in chart.all("circle") if c.attributes["class"] == "dot"]) == 3 + 2 * judged > 3


def test_a_first_night_and_an_empty_one_have_a_page(tmp_path):
    first = nightly(tmp_path, "first", observations=crawls("https://a.test/", "A"))
    assert first.code == 0, first.complaints
    assert "a guess: no page was seen twice" in _text(first)
    empty = nightly(tmp_path, "empty", observations=[seen("no url", at(1))], max_rejected_fraction=1)
    assert empty.code == 3
    found = check_page(_text(empty))
    assert "The schedule is empty" in found.text
    assert [h.text for h in found.all("h2")][-1] == "Rejected rows"
    check_page(_text(first))


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize(
    ("maker", "name", "other"),
    [("page", "report.html", "metrics.prom"), ("of_night", "metrics.prom", "report.html")],
)
def test_what_cannot_be_written_beside_a_night_costs_itself_alone(
    maker, name, other, error, tmp_path, monkeypatch
):
    def fail(*_: object) -> str:
        raise error("not today")

    with monkeypatch.context() as patched:
        patched.setattr(metrics_and_page, maker, fail)
        night = nightly(tmp_path, observations=crawls("https://a.test/", "AB"))
    assert night.code == 0 and night.committed
    assert not (night.folder / name).exists() and (night.folder / other).exists()
    assert "the night is committed" in night.complaints and "not today" in night.complaints
    assert command("report", str(night.folder))[0] == 0
    check_page(_text(night))


def test_the_next_run_writes_a_page_that_a_crash_left_out(nights, tmp_path):
    store = Stored(nights[0].folder.parents[2])
    page = nights[-1].folder / "report.html"
    before = page.read_bytes()
    page.unlink()
    again = store.run(midnight(4), hosts=store.folder / "hosts.jsonl")
    assert again.code == 0 and "nothing to do" in again.printed
    assert page.read_bytes() == before


def test_what_is_no_night_and_what_cannot_be_written_is_said(nights, tmp_path):
    code, _, said = command("report", str(tmp_path))
    assert code == 1 and "no finished night" in said
    (tmp_path / "file").write_text("")
    code, _, said = command("report", str(nights[0].folder), "--output", str(tmp_path / "file" / "x.html"))
    assert code == 2 and "--output=" in said and "cannot be written" in said
    os.mkfifo(tmp_path / "pipe")
    for place, what in ((tmp_path, "a folder"), (tmp_path / "pipe", "a device")):
        code, _, said = command("report", str(nights[0].folder), "--output", str(place))
        assert (code, said) == (2, f"recrawl: --output={place}: is {what}; give the name of a file\n")
    assert not (tmp_path / "pipe").is_file()


def test_all_that_a_chart_draws_lies_within_it():
    rng = np.random.Generator(np.random.Philox(19))
    for size in (1, 2, 9):
        for scale in (1e-6, 1.0, 1e9):
            x = list(range(1, size + 1))
            y = (scale * rng.random((2, size))).tolist()
            lines = [Line("upper", "fresh", x, y[0]), Line("lower", "found", x, [None, *y[1][1:]])]
            bars = [Line("", "crawls", x, y[0], style="bars")]
            for drawn in (lines, bars):
                chart = Chart(
                    "t", "t", "x", "y", drawn, Table("", (), ()), ticks=[(x[0], "a"), (x[-1], "b" * 16)]
                )
                found = chart.drawn()
                for line in found["lines"]:
                    assert all(0 <= a <= WIDTH and 0 <= b <= HEIGHT for a, b in line["points"])
                    assert line["label"][0] + 7 * len(line["line"].name) <= WIDTH or not line["line"].name
                tops = [value for value, _ in found["y_ticks"]]
                assert 3 <= len(tops) <= 8 and len({text for _, text in found["y_ticks"]}) == len(tops)
    assert count(0.0123456).text == "0.0123" and count(1234.5).text == "1,234" and count(None).text == "–"


def test_dots_lie_where_they_are_told():
    rng = np.random.Generator(np.random.Philox(23))
    for log, scale in ((False, 1e-3), (False, 1e6), (True, 1e-4), (True, 1.0)):
        x = scale * rng.random(9)
        dots = [Dot(f"policy {i}", "fresh", v, 0.9 * v, 1.2 * v, f"{v:.3g}") for i, v in enumerate(x)]
        beyond = Dot("beyond", "plain", np.inf, np.inf, np.inf, "more than 9")
        rule = None if log else 0.0
        found = Dots("t", "t", "x", [*dots, beyond], Table("", (), ()), rule, log).drawn()
        *rows, last = found["rows"]
        assert 0 < found["left"] < found["right"] < WIDTH and last["x"] is None
        for row in rows:
            low, high = row["bar"]
            assert found["left"] <= low <= row["x"] <= high <= found["right"]
        at = np.log(x) if log else x
        assert np.corrcoef(at, [row["x"] for row in rows])[0, 1] > 0.99999
        ticks = found["ticks"]
        assert 2 <= len({text for _, text in ticks}) == len(ticks) <= 8
        assert (rule is None) == (found["rule"] is None)


def _brightness(colour: str) -> float:
    """Relative luminance, as WCAG 2 has it."""
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_all_text_stands_out_from_what_is_behind_it(page):
    style = page.all("style")[0].text
    # On paper a dark page has the colours of a light one.
    assert "@media screen and (prefers-color-scheme: dark)" in style
    assert style.count("prefers-color-scheme") == 1
    themes = [dict(re.findall(r"--(\w+): (#\w{6})", part)) for part in style.split("@media")[:2]]
    assert all({"ground", "panel", "ink", "soft", "fresh", "found"} <= theme.keys() for theme in themes)
    for theme in themes:
        for name in theme.keys() - {"ground", "panel", "edge"}:
            for behind in ("ground", "panel"):
                two = sorted(_brightness(theme[n]) for n in (name, behind))
                assert (two[1] + 0.05) / (two[0] + 0.05) >= 4.5, (name, behind, theme)
