"""`recrawl discover` on the logs of crawlers: what they tell is what a table of ours would."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipelines.discovery.logs import HOUR, START, discover, iso, manifest, read, write_csv
from tests.transforms.dialects.test_nutch_links import datum, parsed
from tests.transforms.dialects.test_nutch_links import record as segment
from tests.transforms.dialects.test_wat import answer
from tests.transforms.dialects.test_wat import record as warc

SOURCE = "https://www.a.test/news"
VISITS = ((1, (1, 2)), (3, (2, 3)), (5, (2, 3, 4, 5)), (7, None), (9, (4, 5)))
"""Hours, and the articles that a fetch showed; None: it failed."""


def article(number: int) -> str:
    return f"https://www.a.test/article/{number}"


def at(hour: int) -> str:
    return iso(START + hour * HOUR)


def ours(folder: Path) -> None:
    rows = [
        (SOURCE, article(n) if n else "", START + hour * HOUR, 503 if shown is None else 200)
        for hour, shown in VISITS
        for n in shown or (0,)
    ]
    write_csv(folder / "links.csv", rows)


def scrapy(folder: Path) -> None:
    items = [
        {"url": SOURCE, "links": [article(n) for n in shown or ()], "crawled_at": at(hour)}
        | {"status": 503 if shown is None else 200}
        for hour, shown in VISITS
    ]
    (folder / "items.jl").write_text("".join(json.dumps(item) + "\n" for item in items))


def nutch(folder: Path) -> None:
    for hour, shown in VISITS:
        time = f"Tue Dec 30 {hour:02d}:00:00 UTC 2025"
        if shown is None:
            text = segment(0, SOURCE, datum("34 (fetch_retry)", time))
        else:
            links = parsed(*map(article, shown))
            text = segment(0, SOURCE, datum("33 (fetch_success)", time), links)
        (folder / f"part-r-{hour:05d}").write_text(text)


def wat(folder: Path) -> None:
    text = ""
    for hour, shown in VISITS:
        links = [{"path": "A@/href", "url": f"/article/{n}"} for n in shown or ()]
        found = answer(SOURCE, links, "503" if shown is None else "200")
        found["Envelope"]["WARC-Header-Metadata"]["WARC-Date"] = at(hour)
        text += warc(json.dumps(found))
    (folder / "a.warc.wat").write_text(text)


def feed(folder: Path) -> None:
    rows = ["source,seen_at,file,status"]
    for hour, shown in VISITS:
        rows.append(f"{SOURCE},{at(hour)},{hour}.xml,{503 if shown is None else 200}")
        items = "".join(f"<item><link>{article(n)}</link></item>" for n in shown or ())
        (folder / f"{hour}.xml").write_text(f'<rss version="2.0"><channel>{items}</channel></rss>')
    (folder / "fetched.csv").write_text("\n".join(rows))


FORMATS: dict[str, tuple[Callable[[Path], None], str]] = {
    "scrapy": (scrapy, "*.jl"),
    "nutch": (nutch, "part-*"),
    "wat": (wat, "*.wat"),
    "files": (feed, "fetched.csv"),
}


def run(folder: Path, make: Callable[[Path], None], pattern: str, *more: str) -> Path:
    folder.mkdir()
    make(folder)
    words = (f"--links={folder}/{pattern}", f"--as_of={at(10)}", "--budget=12", "--num_shards=2", *more)
    assert discover(folder / "out", *words) == 0
    return folder / "out"


@pytest.mark.parametrize("form", FORMATS)
def test_a_log_tells_what_a_table_would(form: str, tmp_path: Path) -> None:
    make, pattern = FORMATS[form]
    found = run(tmp_path / "theirs", make, pattern, f"--links_format={form}")
    expected = run(tmp_path / "ours", ours, "links.csv")
    assert [(r["url"], r["found_by"], r["found_at"].hour) for r in read(found, "targets", ("url",))] == [
        (article(n), SOURCE, hour) for n, hour in ((1, 1), (2, 1), (3, 3), (4, 5), (5, 5))
    ]
    for folder in ("targets", "sources", "schedule"):
        assert read(found, folder) == read(expected, folder), folder
    assert manifest(found)["counters"]["visits_failed"] == 1


def test_a_crawl_log_of_heritrix_tells_of_new_links(tmp_path: Path) -> None:
    """It has the links that were new to it, and says nothing of how long links stay."""

    def line(hour: int, second: int, url: str, path: str, via: str, status: int = 200) -> str:
        stamp = f"2025-12-30T{hour:02d}:00:{second:02d}.500Z"
        started = f"20251230{hour:02d}00{second:02d}000+500"
        digest = "sha1:" + "A" * 32
        return f"{stamp} {status:5d} 5120 {url} {path} {via} text/html #012 {started} {digest} - -\n"

    def crawl_log(folder: Path) -> None:
        lines, known = [], set()
        for hour, shown in VISITS:
            lines.append(line(hour, 0, SOURCE, "-", "-", 503 if shown is None else 200))
            new = [n for n in shown or () if n not in known]
            lines += [line(hour, 10 + n, article(n), "L", SOURCE) for n in new]
            known.update(new)
        (folder / "crawl.log").write_text("".join(lines))

    out = run(tmp_path / "heritrix", crawl_log, "crawl.log")
    targets = read(out, "targets", ("url",))
    assert [(r["url"], r["found_at"].hour) for r in targets] == [
        (article(n), hour) for n, hour in ((1, 1), (2, 1), (3, 3), (4, 5), (5, 5))
    ]
    (source,) = [r for r in read(out, "sources") if r["url"] == SOURCE]
    expected = read(run(tmp_path / "ours", ours, "links.csv"), "sources")[0]
    # A little less, as nobody knows that links go while the crawler is away.
    assert 0.5 * expected["new_links_per_day"] < source["new_links_per_day"] <= expected["new_links_per_day"]
