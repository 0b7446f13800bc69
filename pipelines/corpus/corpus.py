"""A made-up web and the logs of a crawler that visits it, for samples, tests and benchmarks.

The pages come in order of their number, any number at a time. Each thing to decide draws from a stream of
random numbers of its own, so that page 17 is the same whether pages are made one by one or all at once.
Memory is O(hosts + rows of one chunk), whatever the number of pages.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from policies.numerics import scrambling

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DAY_MS = 86_400_000
NONE = np.iinfo(np.int64).min  # no time
NO_DIGEST, EMPTY_BODY, FIRST_CONTENT = np.uint64(0), np.uint64(1), np.uint64(2)
MD5_OF_NOTHING = b"d41d8cd98f00b204e9800998ecf8427e"

# name, share of the pages, mean change rate relative to the mean of the host, end of the path
SECTIONS = (
    ("products", 0.40, 1.0, ".html"),
    ("offers", 0.15, 2.5, ""),
    ("news", 0.10, 4.0, "/"),
    ("docs", 0.15, 0.2, ".html"),
    ("help", 0.10, 0.05, ""),
    ("about", 0.10, 0.02, "/"),
)
# name, share, mean change rate relative to the mean of the section
CATEGORIES = (
    ("catalog", 0.45, 1.0),
    ("listing", 0.20, 2.0),
    ("article", 0.20, 0.5),
    ("review", 0.10, 1.0),
    ("archive", 0.05, 0.1),
)
WORDS = (
    "amber anchor autumn beacon birch bridge bronze canyon cedar cherry cobalt copper coral cotton crystal "
    "desert ember falcon fern forest garden ginger granite harbor hazel honey indigo island ivory jasmine "
    "juniper lantern laurel lemon linen lunar maple marble meadow mint mosaic nectar ocean olive orchid "
    "pebble pepper pine plum prairie quartz raven river rowan saffron sage sierra silver slate spruce timber "
    "tulip velvet walnut willow"
).split()[:64]

MEAN_CHANGES_PER_DAY = 0.5
ALWAYS_CHANGES_PER_DAY = 288.0  # a clock or an advertisement on the page
FRACTION_ALWAYS, FRACTION_NEVER = 0.005, 0.02
FRACTION_WITHOUT_LOG, FRACTION_FOUND_LATER, FRACTION_GONE = 0.02, 0.10, 0.015
FRACTION_RETRIED, FRACTION_REPEATED, FRACTION_DELAYED, FRACTION_EMPTY = 0.003, 0.001, 0.005, 0.001
FRACTION_CONDITIONAL = 0.9  # unchanged pages that such hosts answer with 304
POPULARITY_EXPONENT, POPULARITY_RANGE = 1.1, 1e5
IMPRESSIONS_PER_CLICK = 4.0
CRAWLS_BY_WEEKDAY = np.array([1.12, 1.12, 1.10, 1.08, 1.06, 0.78, 0.74])  # Monday first
CLICKS_BY_WEEKDAY = np.array([1.08, 1.10, 1.08, 1.05, 1.00, 0.82, 0.87])
CRAWLS_BY_HOUR = 1.0 + 0.6 * np.cos((np.arange(24) - 3.0) * np.pi / 12.0)  # most at three in the morning


@dataclass(frozen=True, slots=True)
class CorpusSpec:
    """What to make. `first_day` counts days since 1970-01-01 (UTC)."""

    pages: int
    hosts: int
    days: int
    observations: int
    first_day: int
    requests_per_day: float
    giant_host_fraction: float = 0.0
    seed: int = 0


def stream(seed: int, purpose: str) -> np.random.Generator:
    """The stream of random numbers for one purpose."""
    tag = int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "little")
    return np.random.Generator(np.random.Philox(key=(seed % 2**64) | (tag << 64)))


def scramble(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A well mixed bijection of 64 bits."""
    mixed = x.copy()
    scrambling.scramble(mixed)
    return mixed


_HEX = np.frombuffer(b"".join(b"%02x" % i for i in range(256)), np.uint16)


def digest_texts(content: NDArray[np.uint64], seed: int) -> pa.StringArray:
    """32 hexadecimal digits for each content, null for `NO_DIGEST`, MD5's for an empty body."""
    n = len(content)
    words = np.empty((n, 2), np.uint64)
    words[:, 0] = scramble(content ^ np.uint64(seed % 2**64))
    words[:, 1] = scramble(words[:, 0])
    text = _HEX[words.view(np.uint8)].view(np.uint8).reshape(n, 32)
    text[content == EMPTY_BODY] = np.frombuffer(MD5_OF_NOTHING, np.uint8)
    offsets = np.arange(0, 32 * (n + 1), 32, dtype=np.int32)
    valid = np.packbits(content != NO_DIGEST, bitorder="little")
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(text), pa.py_buffer(valid))


def _pick(uniform: Floats, shares: list[float]) -> NDArray[np.intp]:
    return np.searchsorted(np.cumsum(shares)[:-1], uniform, side="right")


class Hosts:
    """The table of hosts: sizes by a power law, each with habits of its own. O(hosts) memory, ~150 B each."""

    def __init__(self, spec: CorpusSpec) -> None:
        n = spec.hosts
        rng = stream(spec.seed, "hosts")
        weight = 1.0 / np.arange(1.0, n + 1.0) ** 0.9
        if spec.giant_host_fraction > 0 and n > 1:
            weight[1:] *= (1.0 - spec.giant_host_fraction) / weight[1:].sum()
            weight[0] = spec.giant_host_fraction
        self.share = weight / weight.sum()
        self.cumulative_share = np.cumsum(self.share)
        self.change_factor = np.exp(0.8 * rng.standard_normal(n) - 0.32)  # mean 1
        self.failure_rate = np.minimum(0.002 + 0.02 * rng.standard_exponential(n), 0.5)
        self.conditional = rng.random(n) < 0.4  # answers 304
        self.dated = rng.random(n) < 0.5  # sends Last-Modified
        self.outage_start_days = np.where(rng.random(n) < 0.1, rng.random(n) * spec.days, np.inf)
        self.outage_end_days = self.outage_start_days + 0.1 + 0.9 * rng.random(n)
        signalled = rng.random(n) < 0.3
        self.recall = np.where(signalled, 0.3 + 0.6 * rng.random(n), 0.0)
        self.false_signals_per_day = np.where(signalled, 0.2 * rng.random(n), 0.0)
        self.pings = rng.random(n) < 0.25
        number = np.arange(n)
        words = pa.array(WORDS)
        self.names = pc.binary_join_element_wise(
            words.take(pa.array(number * 37 % 64)),
            words.take(pa.array((number * 11 + number // 64) % 64)),
            pc.binary_join_element_wise(pa.array(number).cast(pa.string()), pa.scalar("test"), "."),
            "-",
        )
        # A fifth of the hosts, and the largest, have limits of their own: half to three times today's load.
        listed = rng.random(n) < 0.2
        listed[0] = True
        load = self.share * spec.observations / spec.days
        limit = np.maximum(np.round(load * (0.5 + 2.5 * rng.random(n))), 24.0)
        # Two decimals: three could be a thousand, as in 2.248.
        gap = np.floor(100.0 * np.minimum(0.25 + 3.0 * rng.random(n), 0.8 * 86_400 / limit)) / 100.0
        self.listed = np.flatnonzero(listed)
        self.limit_per_day = limit[listed]
        self.min_gap_seconds = gap[listed]


@dataclass(frozen=True, slots=True)
class Pages:
    """Consecutive pages. All arrays have shape (n,)."""

    first: int
    url: pa.StringArray
    host: NDArray[np.intp]
    section: NDArray[np.intp]
    category: NDArray[np.intp]
    change_rate_per_day: Floats
    request_rate_per_day: Floats
    importance: Floats  # nan where nobody set one


@dataclass(frozen=True, slots=True)
class Visits:
    """Fetches in order of page, then time. Arrays have shape (rows,); times are ms since `first_day`."""

    page: Ints  # position in `Pages`
    at_ms: Ints
    logged_ms: Ints  # when the row reached the log: out of order for a few
    status: NDArray[np.int16]
    content: NDArray[np.uint64]
    last_modified_ms: Ints


@dataclass(frozen=True, slots=True)
class Signals:
    """Signals in order of page, shape (rows,); times are ms since `first_day`."""

    page: Ints
    at_ms: Ints


@dataclass(frozen=True, slots=True)
class Requests:
    """Days of pages with an impression, in order of day, then page. Arrays have shape (rows,)."""

    day: Ints  # since `first_day`
    page: Ints
    clicks: Ints
    impressions: Ints


class Corpus:
    """A corpus as a sequence of chunks; call `pages`, then `visits` and `requests`, once for each chunk."""

    def __init__(self, spec: CorpusSpec) -> None:
        self.spec = spec
        self.hosts = Hosts(spec)
        self.made = 0
        self._streams: dict[str, np.random.Generator] = {}
        weekday = (spec.first_day + 3 + np.arange(spec.days)) % 7
        self._click_share = CLICKS_BY_WEEKDAY[weekday]
        hourly = (CRAWLS_BY_WEEKDAY[weekday][:, None] * CRAWLS_BY_HOUR).ravel()
        self._hours_as_days = np.arange(24 * spec.days + 1) / 24.0
        effort = np.concatenate(([0.0], np.cumsum(hourly)))
        self._effort = effort * (spec.days / effort[-1])  # crawl effort spent by each hour, in mean days
        logged = (1 - FRACTION_WITHOUT_LOG) * (1 - 0.5 * FRACTION_FOUND_LATER)
        rows_a_fetch = 1 + FRACTION_RETRIED + FRACTION_REPEATED
        self._crawl_rate = spec.observations / (spec.pages * spec.days * logged * rows_a_fetch)
        a, top = POPULARITY_EXPONENT, POPULARITY_RANGE
        mean_popularity = (a - top ** (1 - a)) / (a - 1)
        self._request_rate = spec.requests_per_day / (spec.pages * mean_popularity)

    def _rng(self, purpose: str) -> np.random.Generator:
        if purpose not in self._streams:
            self._streams[purpose] = stream(self.spec.seed, purpose)
        return self._streams[purpose]

    def pages(self, n: int) -> Pages:
        """The next `n` pages, or those that are left."""
        first = self.made
        n = min(n, self.spec.pages - first)
        self.made += n
        hosts = self.hosts
        host = np.searchsorted(hosts.cumulative_share[:-1], self._rng("host").random(n), side="right")
        section = _pick(self._rng("section").random(n), [s[1] for s in SECTIONS])
        category = _pick(self._rng("category").random(n), [c[1] for c in CATEGORIES])
        mean = MEAN_CHANGES_PER_DAY * hosts.change_factor[host]
        mean = mean * np.array([s[2] for s in SECTIONS])[section]
        mean *= np.array([c[2] for c in CATEGORIES])[category]
        rate = mean * self._rng("rate").standard_gamma(1.0, n)
        kind = self._rng("kind").random(n)
        rate[kind < FRACTION_NEVER] = 0.0
        rate[kind >= 1 - FRACTION_ALWAYS] = ALWAYS_CHANGES_PER_DAY
        popularity = (1.0 - self._rng("popularity").random(n)) ** (-1 / POPULARITY_EXPONENT)
        requests = self._request_rate * np.minimum(popularity, POPULARITY_RANGE)
        importance = np.sqrt(requests) * np.exp(0.3 * self._rng("importance").standard_normal(n))
        importance[self._rng("unrated").random(n) < 0.1] = np.nan
        return Pages(
            first, self._urls(first, host, section), host, section, category, rate, requests, importance
        )

    def _urls(self, first: int, host: NDArray[np.intp], section: NDArray[np.intp]) -> pa.StringArray:
        n = len(host)
        pair = (self._rng("words").random(n) * 4096).astype(np.int64)
        words = pa.array([f"{a}-{b}" for a in WORDS for b in WORDS])
        slug = pc.binary_join_element_wise(
            words.take(pa.array(pair)), pa.array(np.arange(first, first + n)).cast(pa.string()), "-"
        )
        paths = pa.array([f"/{s[0]}/" for s in SECTIONS]).take(pa.array(section))
        ends = pa.array([s[3] for s in SECTIONS]).take(pa.array(section))
        names = self.hosts.names.take(pa.array(host))
        return pc.binary_join_element_wise(pa.scalar("https://"), names, paths, slug, ends, "")

    def _times(self, n: int) -> tuple[Ints, Ints]:
        """Rows (page, ms) of the fetches of `n` pages: a steady rate each, shaken, in the crawler's rhythm.

        A page's k-th fetch falls due when its share of the crawl effort passes k; effort follows the hour and
        the weekday.
        """
        days = self.spec.days
        rate = self._crawl_rate * np.exp(0.6 * self._rng("crawl_rate").standard_normal(n) - 0.18)
        rate[self._rng("without_log").random(n) < FRACTION_WITHOUT_LOG] = 1e-12
        found = self._rng("found").random(n)
        begin = np.where(found < FRACTION_FOUND_LATER, found * (days / FRACTION_FOUND_LATER), 0.0)
        phase = self._rng("phase").random(n)
        low = rate * np.interp(begin, self._hours_as_days, self._effort) + phase
        first = np.floor(low)
        count = (np.floor(rate * days + phase) - first).astype(np.int64)
        page = np.repeat(np.arange(n), count)
        row = np.arange(len(page)) - np.repeat(np.cumsum(count) - count, count)
        due = first[page] + 1.0 + row
        shake = 0.9 * self._rng("shake").random(len(page)) * np.minimum(due - low[page], 1.0)
        at = np.interp((due - shake - phase[page]) / rate[page], self._effort, self._hours_as_days)
        at_ms = np.minimum((at * DAY_MS).astype(np.int64), days * DAY_MS - 1)
        return page, at_ms

    def visits(self, pages: Pages) -> tuple[Visits, Signals]:
        """What the crawler logged about `pages`, and the signals that their hosts sent.

        Changes are Poisson: looking back from a fetch, the age of the last change is exponential, and the
        page has changed since the fetch before if that age is below the gap.
        """
        n = len(pages.host)
        hosts = self.hosts
        page, at_ms = self._times(n)
        rows = len(page)
        number = np.arange(rows)
        starts = np.ones(rows, bool)
        starts[1:] = page[1:] != page[:-1]
        gap_ms = np.diff(at_ms, prepend=0)
        gap_ms[starts] = 0
        host = pages.host[page]
        rate = pages.change_rate_per_day[page]
        with np.errstate(divide="ignore"):
            age_ms = self._rng("age").standard_exponential(rows) * (DAY_MS / rate)
        changed = starts | (age_ms < gap_ms)
        age_ms = np.minimum(age_ms, 1000.0 * DAY_MS).astype(np.int64)
        version_row = np.maximum.accumulate(np.where(changed, number, 0))

        failed = self._rng("failure").random(rows) < hosts.failure_rate[host]
        at_days = at_ms * (1.0 / DAY_MS)
        failed |= (at_days >= hosts.outage_start_days[host]) & (at_days < hosts.outage_end_days[host])
        fate = self._rng("gone").random(n)
        gone_at = np.where(fate < FRACTION_GONE, fate * (self.spec.days / FRACTION_GONE), np.inf)
        gone = (at_days >= gone_at[page]) & ~failed
        good = ~failed & ~gone
        # 304 needs that the crawler holds the content: the last good fetch of this page saw this version.
        last_good = np.maximum.accumulate(np.where(good, number, -1))
        before = np.concatenate(([-1], last_good[:-1])) if rows else last_good
        first_row = np.maximum.accumulate(np.where(starts, number, 0))
        known = (before >= first_row) & (version_row[np.maximum(before, 0)] == version_row)
        unmodified = good & known & hosts.conditional[host]
        unmodified &= self._rng("conditional").random(rows) < FRACTION_CONDITIONAL

        status = np.full(rows, 200, np.int16)
        status[unmodified] = 304
        status[gone] = np.array([404, 410], np.int16)[(pages.first + page[gone]) % 2]
        codes = np.array([0, 503, 500, 502, 429], np.int16)
        failures = _pick(self._rng("failure_kind").random(int(failed.sum())), [0.35, 0.35, 0.15, 0.1, 0.05])
        status[failed] = codes[failures]
        content = ((pages.first + page).astype(np.uint64) << np.uint64(20)) + FIRST_CONTENT
        content += (version_row - first_row).astype(np.uint64)
        content[self._rng("empty").random(rows) < FRACTION_EMPTY] = EMPTY_BODY
        content[status != 200] = NO_DIGEST
        changed_at = (at_ms - age_ms)[version_row]
        modified = np.where(good & hosts.dated[host], changed_at // 1000 * 1000, NONE)

        signals = self._signals(pages, page, at_ms, gap_ms, age_ms, changed & ~starts)

        extra = self._rng("again").random(rows)
        again = np.flatnonzero(extra < FRACTION_RETRIED + FRACTION_REPEATED)
        source = np.insert(number, again + 1, again)
        at_ms = at_ms[source]
        copies = again + 1 + np.arange(len(again))
        retried = copies[extra[again] < FRACTION_RETRIED]
        at_ms[retried] += (1000 + 29_000 * self._rng("retry").random(len(retried))).astype(np.int64)
        at_ms = np.minimum(at_ms, self.spec.days * DAY_MS - 1)
        delay = self._rng("delay").random(len(source))
        late = np.flatnonzero(delay < FRACTION_DELAYED)
        logged = at_ms.copy()
        logged[late] += (delay[late] * (7_200_000 / FRACTION_DELAYED)).astype(np.int64)
        return Visits(page[source], at_ms, logged, status[source], content[source], modified[source]), signals

    def _signals(
        self, pages: Pages, page: Ints, at_ms: Ints, gap_ms: Ints, age_ms: Ints, changed: NDArray[np.bool_]
    ) -> Signals:
        """Signals between fetches: a share of the changes (`recall`), a little late, and false ones."""
        recall = self.hosts.recall[pages.host]
        recall[pages.change_rate_per_day >= ALWAYS_CHANGES_PER_DAY] = 0.0
        rows = np.flatnonzero((recall[page] > 0) & (gap_ms > 0))
        owner = page[rows]
        begin = at_ms[rows] - gap_ms[rows]
        # The last change before a fetch is known; those between it and the fetch before are Poisson still.
        before_last = np.where(changed[rows], gap_ms[rows] - age_ms[rows], 0)
        recall = recall[owner]
        last = changed[rows] & (self._rng("recall").random(len(rows)) < recall)
        hidden_mean = recall * pages.change_rate_per_day[owner] * before_last / DAY_MS
        false_mean = self.hosts.false_signals_per_day[pages.host[owner]] * gap_ms[rows] / DAY_MS
        hidden = np.repeat(np.arange(len(rows)), self._rng("hidden").poisson(hidden_mean))
        false = np.repeat(np.arange(len(rows)), self._rng("false").poisson(false_mean))
        hidden_at = begin[hidden] + self._rng("hidden_at").random(len(hidden)) * before_last[hidden]
        false_at = begin[false] + self._rng("false_at").random(len(false)) * gap_ms[rows][false]
        late = 600_000 * self._rng("signal_delay").standard_exponential(int(last.sum()))
        at = np.concatenate([(at_ms[rows] - age_ms[rows])[last] + late, hidden_at, false_at]).astype(np.int64)
        at = np.minimum(at, self.spec.days * DAY_MS - 1)
        owner = np.concatenate([owner[last], owner[hidden], owner[false]])
        order = np.lexsort((at, owner))
        return Signals(owner[order], at[order])

    def requests(self, pages: Pages) -> Requests:
        """How often `pages` were shown and clicked; Poisson, by the day of the week."""
        mean = pages.request_rate_per_day[:, None] * self._click_share
        clicks = self._rng("clicks").poisson(mean)
        impressions = clicks + self._rng("impressions").poisson((IMPRESSIONS_PER_CLICK - 1) * mean)
        day, page = np.nonzero(impressions.T)
        return Requests(day, page, clicks[page, day], impressions[page, day])
