"""`recrawl init`: what it writes is true of the files, and a night runs with it."""

from __future__ import annotations

import gzip
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from pipelines.look import init
from tests.pipelines.jobs import at, command, seen, write_rows
from transforms.intake.inspecting import Account


def written(folder: Path, *files: object) -> tuple[int, dict, str]:
    path = folder / "recrawl.toml"
    code, _, err = command("init", *map(str, files), f"--output={path}")
    return code, tomllib.loads(path.read_text()), err


def logs(folder: Path, days: int = 4, an_hour: int = 1) -> list[Path]:
    """A log file a day, each with a crawl of every page every hour."""
    return [
        write_rows(
            folder / f"crawl-{at(day)[:10]}.jsonl",
            [seen(f"https://a.test/{n}", at(day, hour)) for hour in range(24) for n in range(an_hour)],
        )
        for day in range(days)
    ]


def test_budget_and_dates_are_those_of_the_log_and_a_night_runs(tmp_path):
    clicks = [{"url": "https://a.test/0", "day": "2026-06-01", "clicks": 3}]
    write_rows(tmp_path / "clicks" / "2026-06-01.csv", clicks)
    logs(tmp_path / "logs", an_hour=2)
    code, said, err = written(tmp_path, tmp_path / "logs" / "*.jsonl", tmp_path / "clicks")
    assert code == 0 and not err
    assert said["observations"] == f"{tmp_path}/logs/crawl-{{date}}.jsonl"
    assert said["requests"] == f"{tmp_path}/clicks/{{date}}.csv"
    assert said["budget"] == 48
    assert said["store"] == f"{tmp_path}/recrawl-store"
    code, out, err = command(
        "night", "--config", str(tmp_path / "recrawl.toml"), "--as-of", at(4)[:19] + "Z", "--num-shards=1"
    )
    assert code == 0, err
    assert "observations: 4 new files" in out and "requests: 1 new file" in out


def test_the_budget_of_a_crawler_that_makes_a_round_a_day_is_a_round(tmp_path):
    """Two rounds are in little more than a day."""
    rounds = [
        write_rows(
            tmp_path / f"{d}.jsonl", [seen(f"https://a.test/{n}", at(d, 2 + n / 60)) for n in range(9)]
        )
        for d in (1, 0)
    ]
    assert written(tmp_path, *rounds)[1]["budget"] == 9


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a/2026-06-01.csv", "a/2026-06-02.csv"], ["a/{date}.csv"]),
        (["a/20260601-x.gz", "a/20260602-x.gz"], ["a/{year}{month}{day}-x.gz"]),
        (["a/2026/06/01/p-0.csv", "a/2026/06/02/p-1.csv"], ["a/{year}/{month}/{day}/p-*.csv"]),
        (["a/2026-06-01/00/x.csv", "a/2026-06-01/13/x.csv"], ["a/{date}/*/x.csv"]),
        (["a/2026-06-01/x-2026-06-02.csv"], ["a/{date}/x-2026-06-02.csv"]),
        (["a/x.csv", "b/y.csv"], ["a/x.csv", "b/y.csv"]),
        (["2026-06-01-crawler/a/b/c/x.log"], ["2026-06-01-crawler/a/b/c/x.log"]),
        (["a/12026-06-011.csv"], ["a/12026-06-011.csv"]),
        # The next crawl begins at another time; a serial number is none.
        (["a/2026-06-01T02-00-05+00-00.jsonl", "a/2026-06-02T02-00-47+00-00.jsonl"], ["a/{date}T*.jsonl"]),
        (["a/20260601_0213.log"], ["a/{year}{month}{day}_*.log"]),
        # Numbers that go on.
        (["a/dump-0614/x", "a/dump-0615/x"], ["a/dump-*/x"]),
        (["a/2026-06-01-00001.gz"], ["a/{date}-00001.gz"]),
    ],
)
def test_few_patterns_match_all_files(names, expected):
    assert init._patterns("observations", {"observations": names}) == expected


def test_a_pattern_takes_no_file_of_another_kind():
    paths = {"observations": ["a/x-1.csv", "a/x-3.csv"], "requests": ["a/x-2.csv"]}
    assert init._patterns("observations", paths) == ["a/x-1.csv", "a/x-3.csv"]
    assert init._patterns("hosts", {"hosts": ["a/2026-06-01.csv"]}) == ["a/2026-06-01.csv"]


def test_options_of_the_inputs_go_into_the_file(tmp_path):
    rows = [{"url": "https://a.test/", "when": "2026-06-01T00:00:00", "digest": "A"}]
    path = tmp_path / "recrawl.toml"
    code, _, _ = command(
        "init", str(write_rows(tmp_path / "log.jsonl", rows)), f"--output={path}",
        "--observations-columns=fetched_at=when", "--observations_timezone=Europe/Berlin",
    )  # fmt: skip
    said = tomllib.loads(path.read_text())
    assert code == 0 and said["observations_columns"] == "fetched_at=when"
    assert said["observations_timezone"] == "Europe/Berlin"
    assert "2026-05-31T22:00:00Z" in path.read_text()


def test_times_without_a_zone_are_named(tmp_path):
    rows = [{"url": "https://a.test/", "when": "2026-06-01T00:00:00", "digest": "A"}] * 2
    path, options = tmp_path / "recrawl.toml", ["--observations-columns=fetched_at=when"]
    code, said, _ = command(
        "init", str(write_rows(tmp_path / "log.jsonl", rows)), f"--output={path}", *options
    )
    zone = "2 times without a zone in when (fetched_at), read as UTC (--observations_timezone says another)"
    text = path.read_text()
    assert code == 0 and f"Look at observations: {zone}" in said
    assert zone in text.replace("\n# ", " ") and '# observations_timezone = "Europe/Berlin"' in text


def test_what_could_not_be_read_is_named_and_what_is_missing_is_left_to_be_given(tmp_path):
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    clicks = write_rows(
        tmp_path / "clicks.csv", [{"url": "https://a.test/", "day": "2026-06-01", "clicks": 1}]
    )
    code, said, err = written(tmp_path, tmp_path / "table.csv", clicks)
    text = (tmp_path / "recrawl.toml").read_text()
    assert code == 1 and "columns a, b" in err and "# Not read: " in text
    assert "budget" not in said and "# budget = " in text


def test_the_site_of_an_access_log_is_that_of_the_crawl_log_where_it_has_one(tmp_path):
    agent = "Mozilla/5.0 Firefox/140.0"
    line = f'203.0.113.1 - - [01/Jun/2026:10:00:00 +0000] "GET /1 HTTP/1.1" 200 5 "-" "{agent}"\n'
    (tmp_path / "access.log").write_text(line)
    for hosts, site in ((["a.test"], "https://a.test"), (["a.test", "b.test"], None)):
        rows = [
            {"url": f"https://{h}/{i}", "fetched_at": at(i), "digest": "A"} for h in hosts for i in range(2)
        ]
        log, path = write_rows(tmp_path / f"{len(hosts)}.jsonl", rows), tmp_path / f"{len(hosts)} hosts.toml"
        code, printed, _ = command("init", str(log), str(tmp_path / "access.log"), f"--output={path}")
        assert code == 0 and tomllib.loads(path.read_text()).get("requests_site") == site
        assert ("Set requests_site in" in printed) == (site is None)
        assert f"  recrawl night --config '{path}'\n" in printed
    assert "one of https://a.test, https://b.test" in path.read_text()


def test_a_share_of_rejected_rows_is_proposed_that_lets_the_night_run(tmp_path):
    (log,) = logs(tmp_path, days=1, an_hour=2)
    with log.open("a") as out:
        out.write('{"url": "relative", "fetched_at": "2026-06-01T00:00:00Z"}\n' * 2)
    code, printed, _ = command("init", str(log), f"--output={tmp_path / 'recrawl.toml'}")
    assert code == 0 and "Rejected: 4.0% of all rows. A night fails" in printed
    assert "# max_rejected_fraction = 0.04\n" in (tmp_path / "recrawl.toml").read_text()
    clicks = [{"url": "https://a.test/0", "day": "2026-06-01", "clicks": 1}] * 400
    more = write_rows(tmp_path / "clicks.csv", clicks)
    code, printed, _ = command("init", str(log), str(more), f"--output={tmp_path / 'both.toml'}")
    assert code == 0 and "Rejected" not in printed, "a night counts all inputs together"


def test_rows_far_from_all_others_and_damaged_files_are_told_and_do_not_count(tmp_path):
    files = logs(tmp_path, an_hour=2)
    write_rows(tmp_path / "crawl-2026-06-05.jsonl", [seen("https://a.test/9", at(1700))])
    packed = gzip.compress(files[0].read_bytes())
    files[0].rename(tmp_path / "whole.txt")
    (tmp_path / f"{files[0].name}.gz").write_bytes(packed[: len(packed) // 2])
    code, printed, _ = command("init", str(tmp_path / "crawl-*"), f"--output={tmp_path / 'recrawl.toml'}")
    text = (tmp_path / "recrawl.toml").read_text()
    assert code == 0 and f"--as_of {at(4)[:19]}Z" in printed
    assert "1 damaged file, read up to there: " in printed and "the gzip stream ends early" in printed
    far = f"1 row of {at(1700)[:10]}, far from all others ({at(0)[:10]} to {at(3)[:10]})"
    assert f"Look at observations: {far}" in printed and far in text.replace("\n# ", " ")
    # Half of the first day is lost with the end of the file.
    assert 36 <= tomllib.loads(text)["budget"] <= 48


def test_days_are_strays_only_where_few_rows_are_far():
    def strays(by_day):
        return Account("", "observations", by_day=Counter(by_day)).strays()

    assert strays({100: 50, 101: 50, 2000: 1}) == ([2000], 100, 101)
    assert strays({5: 1, 100: 99, 101: 100, 2000: 1}) == ([5, 2000], 100, 101)
    assert strays({100: 50, 101: 50, 125: 1}) == ([], 100, 125)
    assert strays({100: 5, 2000: 1}) == ([], 100, 2000)
    # An archive has a capture a year.
    assert strays({365 * year: 10 for year in range(9)}) == ([], 0, 365 * 8)
    assert strays({7: 3}) == ([], 7, 7)


def test_nothing_is_replaced_and_nothing_is_written_of_nothing(tmp_path):
    (log,) = logs(tmp_path, days=1)
    assert written(tmp_path, log)[0] == 0
    code, _, err = command("init", str(log), f"--output={tmp_path}/recrawl.toml")
    assert code == 2 and "is there; remove it" in err
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    code, _, err = command("init", str(tmp_path / "table.csv"), f"--output={tmp_path}/other.toml")
    assert code == 2 and "nothing is written" in err and not (tmp_path / "other.toml").exists()
    (tmp_path / "noise.jsonl").write_text("{noise\n")
    for name, why in (("noise.jsonl", "1 bad_json"), ("empty.jsonl", "no rows at all")):
        (tmp_path / name).touch()
        code, _, err = command("init", str(tmp_path / name), f"--output={tmp_path}/other.toml")
        assert code == 2 and f"no row that a night can use: {why}" in err, err
        assert not (tmp_path / "other.toml").exists()


@pytest.mark.parametrize(
    ("last", "instant"),
    [
        ("2026-06-04T23:00:00+00:00", "2026-06-05T00:00:00Z"),
        ("2026-06-04T23:59:59.999999+00:00", "2026-06-05T00:00:00Z"),
        # A row of midnight itself begins the next day.
        ("2026-06-05T00:00:00+00:00", "2026-06-06T00:00:00Z"),
    ],
)
def test_the_first_night_is_at_the_midnight_that_ends_the_last_day_of_the_log(last, instant):
    assert init._after(last) == instant
