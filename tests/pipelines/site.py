"""A small made-up site with every kind of input, the same in every run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.pipelines.jobs import at

N_HOSTS = 12
SOURCES = ("sitemap", "ping")
Row = dict[str, Any]


@dataclass
class Site:
    """Rows of all inputs. `_day` of observations, requests and signals tells when; it is not written."""

    observations: list[Row] = field(default_factory=list)
    requests: list[Row] = field(default_factory=list)
    pages: list[Row] = field(default_factory=list)
    hosts: list[Row] = field(default_factory=list)
    signals: list[Row] = field(default_factory=list)

    def between(self, kind: str, first_day: float, last_day: float) -> list[Row]:
        """Rows of a log with first_day <= day < last_day, without their `_day`."""
        rows = getattr(self, kind)
        return [
            {k: v for k, v in r.items() if k != "_day"} for r in rows if first_day <= r["_day"] < last_day
        ]


def make_site(n_pages: int = 60, days: int = 30, seed: int = 1, crawls_per_day: float = 0.6) -> Site:
    """Draw a site.

    Pages change at rates from never to twice a day; digests, flags, Last-Modified, 304, failures, removals
    and returns, doubled rows; clicks; signals of two sources, some of unknown pages; a catalogue with floors,
    caps, sections and pages that no log has; host limits.
    """
    rng = np.random.Generator(np.random.Philox(key=seed))
    site = Site()
    for i in range(n_pages):
        host = f"h{int(N_HOSTS * rng.random() ** 2)}.test"
        url = f"https://{host}/section{i % 4}/page-{i}"
        change_rate = 0.0 if i % 9 == 0 else float(rng.gamma(0.7, 0.6))
        _history(site, rng, i, url, change_rate, days, crawls_per_day)
        for day in np.flatnonzero(rng.random(days) < 0.5):
            clicks = int(rng.poisson(0.3 * (1 + i % 7)))
            site.requests.append(
                {
                    "_day": float(day),
                    "url": url,
                    "day": at(int(day))[:10],
                    "clicks": clicks,
                    "impressions": 5 * clicks + 1,
                }
            )
        site.pages.append(
            {
                "url": url,
                "importance": round(float(rng.gamma(1.0, 1.0)), 3),
                "min_rate_per_day": 0.5 if i % 10 == 3 else None,
                "max_rate_per_day": 1.2 if i % 10 == 7 else None,
                "section": f"s{i % 4}",
                "owner": "" if i % 3 else "team",
            }
        )
    for i in range(n_pages // 10):
        site.pages.append(
            {
                "url": f"https://h{i % N_HOSTS}.test/new-{i}",
                "importance": 1.0,
                "min_rate_per_day": None,
                "max_rate_per_day": None,
                "section": f"s{i % 4}",
                "owner": "",
            }
        )
    for j in range(N_HOSTS):
        site.hosts.append(
            {
                "host": f"h{j}.test",
                "max_per_day": 3 if j == 1 else None,
                "min_gap_seconds": 1800 if j == 0 else 30,
            }
        )
    for day in range(days):
        site.signals.append(
            {
                "_day": day + 0.5,
                "url": "https://h0.test/unknown",
                "signalled_at": at(day, 12),
                "source": "ping",
            }
        )
        site.requests.append(
            {
                "_day": float(day),
                "url": "https://h0.test/unknown",
                "day": at(day)[:10],
                "clicks": 1,
                "impressions": 2,
            }
        )
    return site


def _history(
    site: Site,
    rng: np.random.Generator,
    i: int,
    url: str,
    change_rate: float,
    days: int,
    crawls_per_day: float,
) -> None:
    """Draw the changes of one page, and what a crawler sees of them. Its rows are in order of time."""
    n_crawls = max(2, int(rng.poisson(crawls_per_day * days)))
    moments = np.sort(rng.random(n_crawls)) * days
    changes = np.sort(rng.random(int(rng.poisson(change_rate * days)))) * days
    for change in changes:
        if rng.random() < 0.6:
            source = SOURCES[int(rng.integers(2))]
            site.signals.append(
                {"_day": float(change), "url": url, "signalled_at": at(change), "source": source}
            )
    gone_from = rng.random() * days if i % 13 == 5 else np.inf
    for moment in moments:
        version = int(np.searchsorted(changes, moment))
        row: Row = {
            "_day": float(moment),
            "url": url,
            "fetched_at": at(moment),
            "status": 200,
            "digest": None,
            "changed": None,
            "last_modified": None,
            "not_modified": None,
        }
        if i % 5 == 0 and version:
            row["last_modified"] = at(float(changes[version - 1]))
        if i % 8 == 6:
            row["changed"] = bool(rng.random() < 0.3)
        else:
            row["digest"] = f"v{version}"
        if i % 7 == 2:  # times without a zone, as many logs have them
            row["fetched_at"] = row["fetched_at"].removesuffix("Z").replace("T", " ")
            row["last_modified"] = row["last_modified"] and row["last_modified"][:10]
        if rng.random() < 0.05:
            row |= {"status": 503, "digest": None}
        elif gone_from < moment < gone_from + 5:
            row |= {"status": 404, "digest": None}
        elif rng.random() < 0.03:
            row["digest"] = None  # a fetch that says nothing
        elif rng.random() < 0.05:
            row |= {"status": 304, "digest": None, "not_modified": True}
        site.observations.append(row)
        if rng.random() < 0.04:
            site.observations.append(dict(row))  # the same line twice
