"""Sitemaps in the nightly job: from files to signals and state, night after night."""

import gzip
import json
import time
from pathlib import Path

import pytest

from policies.history.lastmods import DISPOSITIONS
from policies.signals.counts import DISPOSITIONS as SIGNAL_DISPOSITIONS
from tests.pipelines.jobs import Night, at, crawls, nightly, seen
from tests.pipelines.stores import Stored, midnight

HOSTS = [f"https://h{i}.test" for i in range(5)]
URLS = [f"{host}/{i}" for host in HOSTS for i in range(4)]
LOG = [row for url in URLS for row in crawls(url, "aaa", 25, 1.0)]


def sitemap(dates: dict[str, str | None]) -> bytes:
    """A sitemap of pages with their dates."""
    items = "".join(
        f"<url><loc>{url}</loc>{'' if date is None else f'<lastmod>{date}</lastmod>'}</url>\n"
        for url, date in dates.items()
    )
    return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{items}</urlset>'.encode()


def night_with(folder: Path, name: str, files: dict[str, bytes], **options: object) -> Night:
    """A night whose sitemaps hold `files`."""
    home = folder / "sitemaps" / name
    home.mkdir(parents=True)
    for file, data in files.items():
        (home / file).write_bytes(data)
    options = {"observations": LOG, **options}
    flags = ["--allow_shrink", *options.pop("flags", [])]
    done = nightly(folder, name, sitemaps=f"{home}/*" if files else None, flags=flags, **options)
    assert done.code == 0, done.complaints
    return done


def carried(night: Night) -> dict[int, str]:
    return {r["url_hash"]: r["lastmod"].isoformat() for r in night.rows("state/lastmods")}


def signals(night: Night) -> dict[int, int]:
    """Signals of sitemaps since the last crawl, by page."""
    found = {}
    for row in night.rows("state/signals"):
        pending = dict(zip(row["source"], row["pending"], strict=True)).get("sitemap", 0)
        if pending:
            found[row["url_hash"]] = pending
    return found


def hash_of(night: Night, url: str) -> int:
    (row,) = [r for r in night.rows("state") if r["url"] == url]
    return row["url_hash"]


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> list[Night]:
    """Three nights: dates are seen, two of them move, no sitemap is there."""
    folder = tmp_path_factory.mktemp("sitemaps")
    dates: dict[str, str | None] = {url: at(20) for url in URLS}
    dates[URLS[0]] = None
    dates["https://h0.test/nobody-knows"] = at(20)
    first = night_with(folder, "first", {"a.xml": sitemap(dates)}, as_of=at(29))
    dates |= {
        URLS[1]: at(29, 7),
        URLS[2]: at(28.5)[:10],
        URLS[3]: at(19),
        URLS[4]: "soon",
        URLS[5]: "2999-01-01",
    }
    half = len(dates) // 2
    parts = [dict(list(dates.items())[:half]), dict(list(dates.items())[half:])]
    files = {"b.xml": sitemap(parts[0]), "c.xml.gz": gzip.compress(sitemap(parts[1]))}
    second = night_with(
        folder,
        "second",
        files,
        as_of=at(30),
        state=first.folder / "state",
        observations=crawls(URLS[0], "b", 29.1),
    )
    third = night_with(
        folder,
        "third",
        {},
        as_of=at(31),
        state=second.folder / "state",
        observations=crawls(URLS[0], "b", 30.1),
    )
    return [first, second, third]


def test_the_first_sight_is_no_signal(nights):
    counters = nights[0].counters
    assert counters["lastmod_first_seen"] == len(URLS) - 1 == len(carried(nights[0]))
    assert counters["no_lastmod"] == counters["sitemap_unknown_pages"] == 1
    assert counters["lastmod_moved"] == 0 and not signals(nights[0])


def test_a_moved_date_is_a_signal(nights):
    second = nights[1]
    moved = {hash_of(second, URLS[1]): 1, hash_of(second, URLS[2]): 1}
    assert signals(second) == moved
    counters = second.counters
    assert counters["lastmod_moved"] == counters["signals_counted"] == 2
    assert counters["lastmod_back"] == counters["bad_lastmod"] == counters["future_lastmod"] == 1
    assert carried(second)[hash_of(second, URLS[1])] == "2026-06-30T07:00:00+00:00"
    assert carried(second)[hash_of(second, URLS[2])] == "2026-06-29T00:00:00+00:00"
    for url in (URLS[3], URLS[4], URLS[5]):  # backwards, unreadable and future dates change nothing
        assert carried(second)[hash_of(second, url)] == carried(nights[0])[hash_of(second, url)]


def test_counters_are_conserved(nights):
    for night in nights[:2]:
        counters = night.counters
        assert sum(counters[name] for name in DISPOSITIONS) == counters["sitemap_urls"]
        assert counters["sitemap_urls"] == counters["sitemaps_accepted"] == len(URLS) + 1
        assert counters["signals"] == counters["lastmod_moved"]
        assert sum(counters[name] for name in SIGNAL_DISPOSITIONS) == counters["signals"]


def test_a_bad_date_is_shown_and_its_page_stays(nights):
    (row,) = nights[1].rejected()
    assert (row["reason"], row["sample"]) == ("bad_lastmod", f"{URLS[4]} | lastmod=soon")
    assert row["row"] > 1 and row["source"].endswith("b.xml")
    assert nights[1].counters.get("sitemaps_rejected", 0) == 0
    assert URLS[4] in nights[1].urls()


def test_the_summary_says_what_became_of_dates(nights):
    def line(night: Night, name: str) -> str:
        (row,) = [text for text in night.printed.splitlines() if text.startswith(f"  {name:<20}")]
        return row[22:]

    first = line(nights[0], "sitemaps")
    assert first.startswith("dates: 0 moved, 19 first seen, 1 of unknown pages, 1 missing; they "), first
    assert line(nights[1], "sitemaps").startswith("dates: 2 moved, 1")
    assert line(nights[0], "rejected") == "none"
    notes = "none; rejected/ has notes, too, where no row is lost: 1 sitemaps bad_lastmod"
    assert line(nights[1], "rejected") == notes


def test_dates_are_carried_through_a_night_without_sitemaps(nights):
    assert carried(nights[2]) == carried(nights[1])
    assert "sitemap_urls" not in nights[2].counters


def test_a_night_without_sitemaps_has_no_folder_for_them(tmp_path):
    assert not (nightly(tmp_path, observations=LOG).folder / "state" / "lastmods").exists()


def test_shards_batches_and_the_order_of_files_change_nothing(nights, tmp_path):
    """Also with another number of shards than the night before."""
    expected = carried(nights[1]), signals(nights[1])
    source = nights[1].folder.parent / "sitemaps" / "second"
    for shards, rows in ((1, 1), (7, 100)):
        again = nightly(
            tmp_path,
            f"with-{shards}",
            flags=["--allow_shrink"],
            observations=crawls(URLS[0], "b", 29.1),
            state=nights[0].folder / "state",
            sitemaps=f"{source}/c.xml.gz,{source}/b.xml",
            as_of=at(30),
            num_shards=shards,
            rows_per_batch=rows,
        )
        assert (carried(again), signals(again)) == expected


def test_what_sites_say_of_the_future_and_of_priorities_moves_nothing(tmp_path):
    """The same plan, to the byte, as without the sitemap: no signal, and no importance of 0 or NaN."""
    pages = [(f"<loc>{url}</loc><lastmod>2999-01-0{i % 9 + 1}</lastmod><priority>{p}</priority>"
              "<changefreq>never</changefreq>")
             for i, (url, p) in enumerate(zip(URLS, ["0.0", "NaN", "-1", "7"] * 5, strict=True))]  # fmt: skip
    data = f"<urlset>{''.join(f'<url>{page}</url>' for page in pages)}</urlset>".encode()
    told = night_with(tmp_path, "told", {"a.xml": data})
    alone = night_with(tmp_path, "alone", {})
    assert told.counters["future_lastmod"] == len(URLS)
    assert told.digests("pages", "schedule", "slots") == alone.digests("pages", "schedule", "slots")


def test_years_and_months_are_not_filled_from_today(tmp_path):
    """Elsewhere `2024` became today in 2024, and moved every night. Also the year of the night."""
    coarse = ["2024", "2024-05", "2026", "2026-06", "2026-07"] * 4
    files = {"a.xml": sitemap(dict(zip(URLS, coarse, strict=True)))}
    first = night_with(tmp_path, "first", files, as_of=at(30))
    for name, day in (("second", 31), ("third", 61)):
        again = night_with(tmp_path, name, files, as_of=at(day), state=first.folder / "state")
        for night in (first, again):
            assert night.counters["coarse_lastmod"] == len(URLS) == night.counters["sitemap_urls"]
            assert not carried(night) and not signals(night)


def test_news_sitemaps_are_news_and_no_mark_against_their_host(tmp_path):
    """38 pages of two days look like a site that dates everything with now. The next day some are gone."""

    def news(numbers: range) -> bytes:
        items = "".join(
            f"<url><loc>https://n.test/{i}</loc><lastmod>{at(28 + i // 20)[:10]}</lastmod><news:news>"
            f"<news:publication_date>{at(28 + i // 20)}</news:publication_date></news:news></url>"
            for i in numbers
        )
        return f"<urlset xmlns:news='https://news.test/'>{items}</urlset>".encode()

    def night(name: str, numbers: range, **options: object) -> Night:
        files = {"a.xml": news(numbers)}
        return night_with(tmp_path, name, files, budget=200, flags=["--sitemap_pages"], **options)

    first = night("first", range(38))
    digest = {r["url"]: r["digest"] for r in LOG}
    crawled = [seen(r["url"], r["due_at"].isoformat(), digest.get(r["url"])) for r in first.rows("schedule")]
    log = [*LOG, *crawled]
    second = night("second", range(8, 45), state=first.folder / "state", as_of=at(31), observations=log)
    new = {f"https://n.test/{i}" for i in range(38)}
    assert new <= {r["url"] for r in first.rows("schedule") if r["reason"] == "new"}
    assert {f"https://n.test/{i}" for i in range(38, 45)} <= {r["url"] for r in second.rows("schedule")}
    for done in (first, second):
        assert done.counters["sitemaps_news"] == 1 and "sitemaps_one_lastmod" not in done.counters
        assert done.counters["lastmod_moved"] == 0 and not done.manifest["warnings"]
    assert second.counters["lastmod_same"] == 30


def test_the_zone_of_the_machine_moves_nothing(tmp_path, monkeypatch):
    """Days, months and times without zone: the same bytes wherever the job runs."""
    endings = ["", "T23:30:00", "T00:30"] * 7
    first, second = (
        {url: day + ending for url, ending in zip(URLS, endings, strict=False)}
        for day in ("2026-06-20", "2026-06-30")
    )
    found = []
    for zone in ("UTC", "America/Los_Angeles", "Pacific/Kiritimati"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        name = zone.replace("/", "-")
        one = night_with(tmp_path, f"{name}-1", {"a.xml": sitemap(first)}, as_of=at(29))
        two = night_with(tmp_path, f"{name}-2", {"a.xml": sitemap(second)}, state=one.folder / "state")
        assert two.counters["lastmod_moved"] == len(URLS)
        found.append(two.digests("pages", "schedule", "state", "slots"))
    monkeypatch.undo()
    time.tzset()
    assert found[0] == found[1] == found[2]


def test_unknown_urls_become_pages_if_asked(tmp_path):
    listed = {"https://new.test/1": at(20), "https://new.test/2": None, URLS[0]: at(20)}
    without = night_with(tmp_path, "without", {"a.xml": sitemap(listed)})
    asked = nightly(
        tmp_path,
        "asked",
        flags=["--sitemap_pages"],
        observations=LOG,
        sitemaps=tmp_path / "sitemaps/without/a.xml",
    )
    assert set(asked.urls()) - set(without.urls()) == {"https://new.test/1", "https://new.test/2"}
    assert asked.page("https://new.test/1")["limit"] == "new"
    assert without.counters["sitemap_unknown_pages"] == 2 and asked.counters["sitemap_unknown_pages"] == 0


def test_a_store_gives_each_night_the_sitemaps_of_its_day(tmp_path):
    """One that was read is not read again; one that was fetched anew is; a night without any goes on."""
    store = Stored(tmp_path, options={"sitemaps": f"{tmp_path}/sitemaps/{{date}}/*.xml", "late_days": 0})
    store.log("logs/a.jsonl", LOG)
    for day, moved in ((27, 0), (28, 3)):
        path = tmp_path / "sitemaps" / at(day)[:10] / "a.xml"
        path.parent.mkdir(parents=True)
        path.write_bytes(sitemap({url: at(day if i < moved else 20) for i, url in enumerate(URLS)}))
    done = [store.run(midnight(day), "--sitemap_pages", "--allow_shrink") for day in (28, 29, 30)]
    assert [night.code for night in done] == [0, 0, 0], [night.complaints for night in done]
    counted = [{n: night.counters.get(n) for n in ("lastmod_first_seen", "lastmod_moved")} for night in done]
    assert [tuple(c.values()) for c in counted] == [(len(URLS), 0), (0, 3), (None, None)]
    assert carried(done[2]) == carried(done[1])


def test_what_sites_write_never_fails_a_night(tmp_path):
    """Even where all of it is wrong, and with the strictest limit of rejected rows."""
    bomb = b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "b">]><urlset><url><loc>&a;</loc></url></urlset>'
    files = {
        "bomb.xml": bomb,
        "page.html": b"<!doctype html><p>Not found",
        "x.txt": b"http://\nhttps://h0.test/0\n?\n",
    }
    night = night_with(tmp_path, "night", files, max_rejected_fraction=0)
    reasons = {r["reason"] for r in night.rejected()}
    assert reasons == {"unsafe_xml", "not_a_sitemap", "bad_url"}
    assert any("sitemaps rows were rejected" in text for text in night.manifest["warnings"])
    assert night.counters["sitemaps_rejected"] == len(night.rejected()) == 4
    assert any(text.startswith("2 of 3 files of --sitemaps are no") for text in night.manifest["warnings"])


def test_a_site_that_is_down_does_not_stop_the_next_night(tmp_path):
    """All of its sitemaps are error pages: that is no loss of history."""
    first = night_with(tmp_path, "first", {"a.xml": sitemap({url: at(20) for url in URLS})}, as_of=at(29))
    (tmp_path / "error.xml").write_bytes(b"<html><p>503")
    again = nightly(
        tmp_path, "again", observations=LOG, sitemaps=tmp_path / "error.xml", state=first.folder / "state"
    )
    assert again.code == 0, again.complaints
    assert carried(again) == carried(first) and again.counters["sitemaps_rejected_not_a_sitemap"] == 1


def test_keys_of_pings_are_nowhere(tmp_path):
    """Not in any file of the night, nor in what it prints, whatever is wrong with a row."""
    key = "0123456789abcdef-SECRET"
    where = f"https://h0.test/{key}.txt"
    rows = [
        {"received_at": at(29), "host": "h0.test", "key": key, "urlList": [URLS[0], "https://other.test/x"]},
        {"received_at": at(29), "host": "h0.test", "key": key, "urlList": URLS[1], "keyLocation": where},
        {"received_at": at(29), "url": URLS[2], "key": key},
        {"received_at": "soon", "url": URLS[2], "key": key},
        {"received_at": at(29), "url": f"mailto:a?url=x&key={key}", "key": key},
        {"received_at": at(29), "host": "h0.test", "key": key, "urlList": [URLS[0]] * 10_001},
        {"received_at": at(29), "host": "https://h0.test/", "key": key, "urlList": []},
    ]
    lines = [json.dumps(row) for row in rows]
    lines += [lines[0][:90], lines[0][60:], f'"{key}"', f"[{lines[0][:70]}"]
    log = tmp_path / "pings.jsonl"
    log.write_text("\n".join(lines) + "\n")
    night = nightly(tmp_path, observations=LOG, signals=log)
    assert night.code == 0, night.complaints
    found = [r["reason"] for r in night.rejected()]
    wrong = ["bad_json"] * 4 + ["bad_timestamp", "bad_url", "no_urls", "other_host", "too_many_urls"]
    assert sorted(found) == wrong
    assert night.counters["signals_accepted"] == 3 and night.counters["signals_rejected"] == 8
    assert night.counters["signals_noted_no_urls"] == 1
    assert {name for r in night.rows("state/signals") for name in r["source"]} == {"indexnow"}
    texts = [night.printed, night.complaints, json.dumps(night.rejected(), default=str)]
    texts += [p.read_bytes().decode("latin-1") for p in night.folder.rglob("*") if p.is_file()]
    assert not [text for text in texts if "SECRET" in text or "456789abcdef" in text]
