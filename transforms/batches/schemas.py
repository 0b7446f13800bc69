"""The columns of every stage, declared once, with units in their names.

A batch that crosses a stage carries exactly one of these schemas; `check` says in one message what is
missing, extra or of another type. Times are UTC microseconds.
"""

import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")


def named_schema(kind: str, fields: list[tuple[str, pa.DataType]], **metadata: str) -> pa.Schema:
    """A schema that carries its own name, so that batches of several kinds can share one shuffle."""
    return pa.schema(fields, metadata={"recrawl": kind, **metadata})


# What the readers hand over, one row an input row. `digest_hash` is the stable 64-bit hash of the digest
# text, null where there is none (the digest of an empty body counts as none); `digest_form` tells which of
# them can be compared, see transforms.batches.digests.
OBSERVATIONS = named_schema(
    "observations",
    [
        ("url", pa.string()),
        ("fetched_at", TIME),
        ("status", pa.int16()),
        ("digest_hash", pa.uint64()),
        ("digest_form", pa.uint32()),
        ("changed", pa.bool_()),
        ("not_modified", pa.bool_()),
        ("last_modified", TIME),
    ],
)
# Counts are fixed point, 2**-20 of a request: sums must not depend on the order of addition.
COUNT_UNIT = 2**-20
# `hour` is that of the day, UTC, null where it is not known.
REQUESTS = named_schema(
    "requests",
    [
        ("url", pa.string()),
        ("day", pa.int32()),
        ("hour", pa.int8()),
        ("clicks", pa.int64()),
        ("impressions", pa.int64()),
    ],
)
SIGNALS = named_schema("signals", [("url", pa.string()), ("signalled_at", TIME), ("source", pa.string())])
# What sitemaps list. `lastmod` is where the year, month, day or instant begins that the sitemap names, null
# where there is none; `precision` is that of policies.history.lastmods.
SITEMAPS = named_schema("sitemaps", [("url", pa.string()), ("lastmod", TIME), ("precision", pa.int8())])
# When pages changed, for a replay. `first` is where the page appears.
CHANGES = named_schema(
    "changes",
    [("url", pa.string()), ("changed_at", TIME), ("digest_hash", pa.uint64()), ("first", pa.bool_())],
)
# What sources showed, for a replay: pages fetched for their links, and when they named a target. A source is
# the text that tells it from others, a target the stable hash of that text, see transforms.rows.link_rows.
LINKS = named_schema(
    "links",
    [
        ("source", pa.string()),
        ("target_hash", pa.uint64()),
        ("appeared_at", TIME),
        ("gone_at", TIME),
        ("domain", pa.string()),
        ("given", pa.bool_()),
    ],
)
# When sources were looked at: `ok` tells from polls that failed or led elsewhere.
SNAPSHOTS = named_schema(
    "snapshots",
    [("source", pa.string()), ("seen_at", TIME), ("ok", pa.bool_()), ("domain", pa.string())],
)
# Links seen, for the discovery job: a row a link of a fetch, or a fetch without one (`target` null). Rows of
# a fetch have one time. `partial`: the log names only links that were new to it. A target is known by the
# hash of its text, see transforms.rows.link_rows.
LINKS_SEEN = named_schema(
    "links_seen",
    [
        ("source", pa.dictionary(pa.int32(), pa.string())),
        ("target", pa.dictionary(pa.int32(), pa.string())),
        ("seen_at", TIME),
        ("ok", pa.bool_()),
        ("target_hash", pa.uint64()),
        ("off_site", pa.bool_()),
        ("partial", pa.bool_()),
    ],
)
SOURCES = named_schema("sources", [("url", pa.string())])
# Which pages to fetch for their links, and when.
REFRESHES = named_schema("refreshes", [("url", pa.string()), ("due_at", TIME)])
# Metadata columns of the catalogue follow these, as strings.
PAGES = named_schema(
    "pages",
    [
        ("url", pa.string()),
        ("importance", pa.float64()),
        ("min_rate_per_day", pa.float64()),
        ("max_rate_per_day", pa.float64()),
        ("published_at", TIME),
    ],
)
HOSTS = named_schema(
    "hosts",
    [
        ("host", pa.string()),
        ("max_per_day", pa.float64()),
        ("min_gap_seconds", pa.float64()),
        ("group", pa.string()),
    ],
)

# A row that could not be used: where it came from, why, and what it looked like.
REJECTED = named_schema(
    "rejected",
    [("source", pa.string()), ("row", pa.int64()), ("reason", pa.string()), ("sample", pa.string())],
)

# What a night carries over, one row a page, sorted by (host_hash, url_hash): its change history, and then the
# columns of statistics, see transforms.kept.statistics. Sums are landmark-weighted (see
# policies.history.history); times are null where nothing happened yet.
STATE = named_schema(
    "state",
    [
        ("url", pa.string()),
        ("host", pa.string()),
        ("url_hash", pa.uint64()),
        ("host_hash", pa.uint64()),
        ("exposure_days", pa.float64()),
        ("dated_changes", pa.float64()),
        ("bin_id", pa.list_(pa.int32())),
        ("bin_weight", pa.list_(pa.float64())),
        ("bin_days", pa.list_(pa.float64())),
        ("bin_days_squared", pa.list_(pa.float64())),
        ("n_intervals", pa.int32()),
        ("n_changes", pa.int32()),
        ("baseline_at", TIME),
        ("last_success_at", TIME),
        ("last_attempt_at", TIME),
        ("digest_hash", pa.uint64()),
        ("digest_form", pa.uint32()),
        ("replaced_digest_hash", pa.uint64()),
        ("n_returns", pa.int32()),
        ("gone", pa.bool_()),
        ("last_modified_at", TIME),
        ("last_modified_seen_at", TIME),
        ("last_change_at", TIME),
    ],
)
# One row for every page of a host that ever sent a signal, sorted by (host_hash, url_hash); see
# policies.signals.state. Lists have one entry a source, one a bin or one a pair of sources, named by their
# places in `source`; `bin_signals` has one a bin and source.
STATE_SIGNALS = named_schema(
    "state_signals",
    [
        ("url_hash", pa.uint64()),
        ("host_hash", pa.uint64()),
        ("since", TIME),
        ("exposure_days", pa.float64()),
        ("dated_changes", pa.float64()),
        ("watched_days", pa.float64()),
        ("source", pa.list_(pa.string())),
        ("pending", pa.list_(pa.int32())),
        ("unchanged", pa.list_(pa.float64())),
        ("total", pa.list_(pa.float64())),
        ("last_signal_at", pa.list_(TIME)),
        ("recent_hours", pa.list_(pa.uint64())),
        ("bin_id", pa.list_(pa.int32())),
        ("bin_signals", pa.list_(pa.uint8())),
        ("bin_weight", pa.list_(pa.float64())),
        ("bin_days", pa.list_(pa.float64())),
        ("bin_days_squared", pa.list_(pa.float64())),
        ("pair_first", pa.list_(pa.int8())),
        ("pair_second", pa.list_(pa.int8())),
        ("near_pending", pa.list_(pa.int32())),
        ("far_pending", pa.list_(pa.int32())),
        ("near", pa.list_(pa.float64())),
        ("far", pa.list_(pa.float64())),
    ],
)
# What nights wrote before signals were used: one row per (page, source), sorted so.
STATE_SIGNALS_BEFORE = named_schema(
    "state_signals_before",
    [
        ("url_hash", pa.uint64()),
        ("host_hash", pa.uint64()),
        ("source", pa.string()),
        ("last_signal_at", TIME),
        ("pending", pa.int32()),
        ("in_unchanged", pa.int32()),
        ("in_changed", pa.int32()),
    ],
)
# One row per page with a usable lastmod in a sitemap, the newest so far, sorted by (host_hash, url_hash).
STATE_LASTMODS = named_schema(
    "state_lastmods",
    [("url_hash", pa.uint64()), ("host_hash", pa.uint64()), ("lastmod", TIME), ("precision", pa.int8())],
)
# Intervals between crawls that are kept to learn when a host's pages change, see policies.clocks.kept, and
# the clocks in whose time `state` is, or that may come; other hosts have no row.
STATE_CLOCKS = named_schema(
    "state_clocks",
    [
        ("url_hash", pa.uint64()),
        ("host_hash", pa.uint64()),
        ("to_minute", pa.int32()),
        ("minutes", pa.int32()),
        ("changed", pa.bool_()),
    ],
)
STATE_CLOCK_PROFILES = named_schema(
    "state_clock_profiles",
    [
        ("host_hash", pa.uint64()),
        ("hour", pa.list_(pa.float64())),
        ("age", pa.list_(pa.float64())),
        ("gain", pa.float64()),
    ],
)
# Clicks and impressions of hosts by hour of the day (UTC), in `COUNT_UNIT`, as they count on `day`, see
# policies.history.request_hours; hosts without requests of known hours have no row.
STATE_REQUEST_HOURS = named_schema(
    "state_request_hours",
    [("host_hash", pa.uint64()), ("day", pa.int32()), ("requests", pa.list_(pa.int64()))],
)
# What was scheduled and not yet seen in a log: kept apart from `state`, which depends on the logs alone. With
# columns of statistics, such as what the night thought of these pages, so that the next one can compare.
SLOTS_PAGES = named_schema(
    "slots_pages",
    [
        ("url_hash", pa.uint64()),
        ("host_hash", pa.uint64()),
        ("last_slot_at", TIME),
    ],
)
SLOTS_HOSTS = named_schema(
    "slots_hosts",
    [
        ("host_hash", pa.uint64()),
        ("last_slot_at", TIME),
        ("signal_window_crawls", pa.float32()),
        ("forecast_gain", pa.float32()),
        ("forecast_events", pa.float32()),
        ("forecast_hazard", pa.float32()),
        ("forecast_own_gain", pa.float32()),
    ],
)
# Columns that nights of an older version did not write; they are read as null.
ADDED_LATER = (
    "signal_window_crawls",
    "forecast_gain",
    "forecast_events",
    "forecast_hazard",
    "forecast_own_gain",
    "last_change_at",
    "digest_form",
    "replaced_digest_hash",
    "n_returns",
    "last_modified_seen_at",
)
# Columns that nights of an older version wrote, and nobody reads any more.
READ_NO_MORE = ("forecast_cell",)

# A file of the previous night that holds just the rows of one shard: the shard reads it where it needs it.
PREVIOUS_FILE = named_schema(
    "previous_file", [("folder", pa.string()), ("path", pa.string()), ("sha256", pa.string())]
)

# Between the stages of one night, one batch each in a ShardTables, beside that of pages (see
# transforms.night.folding). `bins` has the undated changes of all pages, `n_bins` rows a page.
BINS_TABLE = named_schema(
    "bins_table", [("weight", pa.float64()), ("days", pa.float64()), ("days_squared", pa.float64())]
)
# Signals of a shard that has any: pages of hosts that ever sent one (`row` of the pages table), their sources
# and their changed intervals. `source` is a row of `sources`, `signature` is that of policies.signals.state.
SIGNAL_PAGES_TABLE = named_schema(
    "signal_pages_table",
    [
        ("row", pa.int32()),
        ("exposure_days", pa.float64()),
        ("dated_changes", pa.float64()),
        ("watched_days", pa.float64()),
        ("running_days", pa.float64()),
    ],
)
SIGNAL_SOURCES_TABLE = named_schema(
    "signal_sources_table",
    [
        ("row", pa.int32()),
        ("source", pa.int8()),
        ("pending", pa.int32()),
        ("unchanged", pa.float64()),
        ("total", pa.float64()),
        ("last_signal_at", TIME),
    ],
)
SIGNAL_BINS_TABLE = named_schema(
    "signal_bins_table",
    [
        ("row", pa.int32()),
        ("signature", pa.uint32()),
        ("weight", pa.float64()),
        ("days", pa.float64()),
        ("days_squared", pa.float64()),
    ],
)
SIGNAL_PAIRS_TABLE = named_schema(
    "signal_pairs_table",
    [
        ("row", pa.int32()),
        ("first", pa.int8()),
        ("second", pa.int8()),
        ("near", pa.float64()),
        ("far", pa.float64()),
    ],
)
SOURCES_TABLE = named_schema("sources_table", [("name", pa.string())])
# Shards have the columns of policies.judging.host_factors, float64, besides.
HOSTS_TABLE = named_schema(
    "hosts_table",
    [
        ("host", pa.string()),
        ("host_hash", pa.uint64()),
        ("n_pages", pa.int32()),
        ("limit_per_day", pa.float64()),
        ("max_slots", pa.int64()),
        ("gap_us", pa.int64()),
        ("last_slot_at", TIME),
        ("signal_window_crawls", pa.float64()),
    ],
)

# The job's results; statistics have columns in pages/, too.
PAGES_OUT = named_schema(
    "pages_out",
    [
        ("url", pa.string()),
        ("host", pa.string()),
        ("change_rate_per_day", pa.float64()),
        ("change_rate_stderr", pa.float64()),
        ("request_rate_per_day", pa.float64()),
        ("impression_rate_per_day", pa.float64()),
        ("n_intervals", pa.int32()),
        ("n_changes", pa.int32()),
        ("last_crawl_at", TIME),
        ("crawl_rate_per_day", pa.float64()),
        ("expected_freshness", pa.float64()),
        ("crawl_value", pa.float64()),
        ("owed", pa.float64()),
        ("limit", pa.string()),
        ("boundary", pa.bool_()),
    ],
)
# One row a host; of a host that signals, one a source. A host that is split has rows in each of its shards.
HOSTS_OUT = named_schema(
    "hosts_out",
    [
        ("host", pa.string()),
        ("pages", pa.int64()),
        ("crawl_rate_per_day", pa.float64()),
        ("limit_per_day", pa.float64()),
        ("min_gap_seconds", pa.float64()),
        ("slots", pa.int64()),
        ("peak_hour", pa.int32()),
        ("peak_share", pa.float64()),
        ("half_age_hours", pa.float64()),
        ("source", pa.string()),
        ("signalling_pages", pa.int64()),
        ("signals", pa.float64()),
        ("signals_since_crawl", pa.int64()),
        ("last_signal_at", TIME),
        ("signal_rate_per_day", pa.float64()),
        ("signal_precision", pa.float64()),
        ("signal_precision_stderr", pa.float64()),
        ("signal_recall", pa.float64()),
        ("signal_recall_stderr", pa.float64()),
        ("silent", pa.bool_()),
    ],
)
SCHEDULE = named_schema(
    "schedule",
    [
        ("shard", pa.int32()),
        ("slot", pa.int64()),
        ("due_at", TIME),
        ("url", pa.string()),
        ("host", pa.string()),
        ("crawl_rate_per_day", pa.float64()),
        ("reason", pa.string()),
        ("weight", pa.float64()),
        ("value", pa.float64()),
    ],
)


class SchemaError(ValueError):
    """A batch does not have the columns that its stage was promised."""


def kind_of(batch: pa.RecordBatch) -> str:
    """The name of the schema that a batch was made with."""
    return (batch.schema.metadata or {}).get(b"recrawl", b"").decode()


def check(batch: pa.RecordBatch, expected: pa.Schema, where: str) -> None:
    """Raise `SchemaError` if the batch's columns are not those of `expected`, in one message."""
    if batch.schema.equals(expected):
        return
    have = {f.name: f.type for f in batch.schema}
    want = {f.name: f.type for f in expected}
    problems = [f"missing {n} ({t})" for n, t in want.items() if n not in have]
    problems += [f"extra {n} ({t})" for n, t in have.items() if n not in want]
    problems += [f"{n} is {have[n]}, expected {t}" for n, t in want.items() if n in have and have[n] != t]
    problems = problems or ["the columns are in another order"]
    raise SchemaError(f"{where}: {'; '.join(problems)}")
