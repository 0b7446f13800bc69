"""A shop of 301 pages and a Scrapy spider that visits them, both made up: the example of docs/tutorial.md.

`python3 docs/shop.py` writes two weeks of logs: every page is visited once a day, and people click.
`python3 docs/shop.py QUEUE` visits what a queue of requests asks for, and adds the logs of that day.
"""

import csv
import hashlib
import json
import random
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

START, DAYS = datetime(2026, 6, 1, tzinfo=UTC), 14
# Sections: pages, changes of each a day, clicks a day of the first; the n-th has an n-th of them.
SECTIONS = {"offers": (20, 0.8, 60.0), "products": (240, 0.1, 40.0), "help": (40, 0.002, 4.0)}
PAGES = {"https://shop.example/": (3.0, 200.0)} | {
    f"https://shop.example/{section}/{n}": (changes, clicks / n)
    for section, (pages, changes, clicks) in SECTIONS.items()
    for n in range(1, pages + 1)
}


def version(url: str, at: datetime) -> int:
    """How often a page has changed by then: at random, and the same in every run."""
    drawn, day, changes = random.Random(url), 0.0, 0
    while (day := day + drawn.expovariate(PAGES[url][0])) <= (at - START) / timedelta(days=1):
        changes += 1
    return changes


def visit(url: str, at: datetime) -> dict[str, object]:
    """What the spider yields of a page; see its digest as the fingerprint of what it has read."""
    digest = hashlib.sha1(f"{url}, version {version(url, at)}".encode()).hexdigest()
    return {"url": url, "crawled_at": at.isoformat(), "status": 200, "body_sha1": digest}


def write_day(day: datetime, visits: Iterable[tuple[str, datetime]]) -> None:
    feed, clicks = Path(f"feeds/{day:%Y-%m-%d}.jsonl"), Path(f"clicks/{day:%Y-%m-%d}.csv")
    for file in (feed, clicks):
        file.parent.mkdir(exist_ok=True)
    feed.write_text("".join(f"{json.dumps(visit(url, at))}\n" for url, at in visits), encoding="utf-8")
    drawn = random.Random(f"{day}")
    with clicks.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("url", "day", "clicks"))
        asked = {url: int(mean + drawn.random()) for url, (_, mean) in PAGES.items()}
        rows.writerows((url, f"{day:%Y-%m-%d}", n) for url, n in asked.items() if n)
    print(feed, clicks)


if sys.argv[1:]:
    requests = [json.loads(line) for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()]
    due = [(request["url"], datetime.fromisoformat(request["due_at"])) for request in requests]
    write_day(due[0][1], due)
else:
    for day in (START + timedelta(days=n) for n in range(DAYS)):
        write_day(day, ((url, day + timedelta(seconds=280 * i)) for i, url in enumerate(PAGES)))
