"""Small dumps of crawlers, of one shop, with its last fetches in June 2026."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

PAGES = [f"https://shop.test/p/{i}" for i in range(6)] + ["https://other.test/?q=a&b=c"]


def fetched_at(page: int, visit: int = 0) -> datetime:
    return datetime(2026, 6, 20 + visit, page, 30, tzinfo=UTC)


def digest(page: int, visit: int = 0) -> str:
    """Odd pages change at every visit."""
    return hashlib.md5(f"{page}/{visit * (page % 2)}".encode()).hexdigest()


def nutch(folder: Path) -> int:
    """`readdb -dump` as JSON, one row a page, and the empty file that Hadoop lays beside it."""
    lines = []
    for i, url in enumerate(PAGES):
        row = {"url": url, "statusCode": 2, "statusName": "db_fetched"}
        row["fetchTime"] = f"{fetched_at(i) + timedelta(days=30):%a %b %d %H:%M:%S UTC %Y}"
        row |= {"modifiedTime": "Thu Jan 01 00:00:00 UTC 1970", "retriesSinceFetch": 0}
        row |= {"retryIntervalSeconds": 2592000, "retryIntervalDays": 30, "score": 0.0}
        lines.append(json.dumps(row | {"signature": digest(i), "metadata": {}}) + "\n")
    (folder / "dump").mkdir()
    (folder / "dump" / "part-r-00000").write_text("".join(lines))
    (folder / "dump" / "_SUCCESS").write_text("")
    return len(PAGES)


def stormcrawler(folder: Path) -> int:
    """The status index, one document a page."""
    lines = []
    for i, url in enumerate(PAGES):
        kept = {"fetch%2EstatusCode": "200", "signature": digest(i), "lastProcessedDate": _iso(fetched_at(i))}
        document = {
            "url": url,
            "status": "FETCHED",
            "key": url.split("/")[2],
            "nextFetchDate": "2026-07-20T00:00:00.000Z",
        }
        document["metadata"] = {k: [v] for k, v in kept.items()}
        lines.append(json.dumps({"_index": "status", "_id": url, "_source": document}) + "\n")
    (folder / "status").mkdir()
    (folder / "status" / "2026-06-30.jsonl").write_text("".join(lines))
    return len(PAGES)


def heritrix(folder: Path) -> int:
    """A job with a log of three visits to each page, and the lock that Java's logging lays beside it."""
    logs = folder / "jobs" / "shop" / "20260620000000" / "logs"
    logs.mkdir(parents=True)
    (folder / "jobs" / "shop" / "latest").symlink_to("20260620000000")
    (folder / "jobs" / "shop" / "action").mkdir()
    lines = []
    for visit in range(3):
        for i, url in enumerate(PAGES):
            at = fetched_at(i, visit)
            lines.append(
                f"{_iso(at)}   200       5120 {url} L https://shop.test/ text/html #012 "
                f"{at:%Y%m%d%H%M%S}500+310 sha1:{digest(i, visit)} - -\n"
            )
    (logs / "crawl.log").write_text("".join(lines))
    (logs / "crawl.log.lck").write_text("")
    return len(lines)


def scrapy(folder: Path) -> int:
    """Feeds of two days."""
    (folder / "feeds").mkdir()
    n = 0
    for visit in range(2):
        rows = [
            {
                "url": url,
                "crawled_at": _iso(fetched_at(i, visit)),
                "status": 200,
                "body_sha1": digest(i, visit),
            }
            for i, url in enumerate(PAGES)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "feeds" / f"{visit}.jsonl").write_text(text)
        n += len(rows)
    return n


def urlfrontier(folder: Path) -> int:
    """What the client's DumpURLs prints, with StormCrawler's metadata, and a page that was never fetched."""
    lines = []
    for i, url in enumerate(PAGES):
        kept = {"fetch.statusCode": "200", "signature": digest(i), "lastProcessedDate": _iso(fetched_at(i))}
        info = {
            "url": url,
            "key": url.split("/")[2],
            "metadata": {k: {"values": [v]} for k, v in kept.items()},
        }
        known = {"info": info | {"crawlID": "DEFAULT"}, "refetchableFromDate": "1784505600"}
        lines.append(json.dumps({"known": known, "ID": f"DEFAULT_{url}"}, separators=(",", ":")) + "\n")
    new = {"url": "https://shop.test/new", "key": "shop.test", "crawlID": "DEFAULT"}
    lines.append(json.dumps({"discovered": {"info": new}}, separators=(",", ":")) + "\n")
    (folder / "dump.jsonl").write_text("".join(lines))
    return len(PAGES)


def archives(folder: Path) -> int:
    """A folder with the CDX of one crawl, and the CDXJ of the next beside its records."""
    (folder / "index").mkdir()
    lines = [" CDX N b a m s k r M S V g\n"]
    for i, url in enumerate(PAGES):
        at = f"{fetched_at(i):%Y%m%d%H%M%S}"
        lines.append(f"- {at} {url} text/html 200 {_base32(digest(i))} - - 512 0 a.warc.gz\n")
    (folder / "index" / "1.cdx").write_text("".join(lines))
    lines = []
    for i, url in enumerate(PAGES):
        fields = {"url": url, "mime": "text/html", "status": "200", "digest": f"sha1:{_base32(digest(i, 1))}"}
        lines.append(f"- {fetched_at(i, 1):%Y%m%d%H%M%S} {json.dumps(fields)}\n")
    (folder / "index" / "2.cdxj.gz").write_bytes(gzip.compress("".join(lines).encode()))
    (folder / "index" / "2.warc.gz").write_bytes(gzip.compress(b"WARC/1.0\r\n"))
    return 2 * len(PAGES)


def _base32(text: str) -> str:
    return base64.b32encode(hashlib.sha1(text.encode()).digest()).decode()


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
