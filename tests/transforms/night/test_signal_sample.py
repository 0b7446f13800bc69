"""Signals in the sample from which priors are learned: nothing is lost, and shards do not matter."""

from dataclasses import fields

import numpy as np
import pyarrow as pa
import pytest

from policies.signals.estimation import Pooled, default_prior
from policies.signals.evidence import SignalEvidence
from tests.policies.signal_evidence import take
from tests.policies.signal_simulation import Simulated, simulate
from tests.transforms.signal_shards import shard_of
from transforms.batches.coders import ShardTables
from transforms.kept.signals import signal_evidence_of
from transforms.night.sampling import SAMPLE, Overview, merge_overviews, sample_shard
from transforms.night.signal_sample import (
    COLUMNS,
    _signals,
    learn_trust,
    prior_of_hosts,
    sampled_signals,
)
from transforms.night.trusting import LearnedTrust

FIELDS = tuple(SignalEvidence.__dataclass_fields__)
HOSTS, PER_HOST, N_SOURCES = 6, 25, 3
NAMES = ("indexnow", "ping", "sitemap")


def _population(k: int = 5) -> tuple[Simulated, np.ndarray]:
    """Hosts 0 and 1 have the first source, 2 and 3 the other two, 4 and 5 none."""
    n = HOSTS * PER_HOST
    rng = np.random.Generator(np.random.Philox(key=3))
    rate = rng.gamma(1.2, 0.3, n) + 0.02
    host = np.repeat(np.arange(HOSTS), PER_HOST)
    drawn = simulate(3, rate, k, np.array([0.9, 0.2, 0.6]), np.array([0.4, 0.2, 0.3]))
    signals = drawn.signals.copy()
    of = host[drawn.page]
    signals[of > 1, 0] = 0
    signals[(of < 2) | (of > 3), 1:] = 0
    return _with(drawn, signals), host


def _with(drawn: Simulated, signals: np.ndarray) -> Simulated:
    return Simulated(
        drawn.unsignalled, drawn.signal_rate, drawn.weight, drawn.page, drawn.gap, signals, drawn.changed
    )


def _hosts_of(drawn: Simulated, host: np.ndarray, chosen: list[int]) -> ShardTables:
    """A shard with some hosts, and only the sources that those have."""
    pages = np.flatnonzero(np.isin(host, chosen))
    rows = np.flatnonzero(np.isin(drawn.page, pages))
    used = np.flatnonzero(drawn.signals[rows].any(axis=0))
    part = Simulated(
        drawn.unsignalled[pages],
        drawn.signal_rate[pages],
        drawn.weight[pages],
        np.searchsorted(pages, drawn.page[rows]),
        drawn.gap[rows],
        drawn.signals[rows][:, used],
        drawn.changed[rows],
    )
    names, code = np.unique(host[pages], return_inverse=True)
    hashes = (names + 1).astype(np.uint64)
    url = (pages + 1).astype(np.uint64)
    return shard_of(part, code, [NAMES[j] for j in used], None, 0.5, hashes, url)


def _sample(*shards: ShardTables, giants: tuple[int, ...] = ()) -> Overview:
    return merge_overviews([Overview(*sample_shard(s, giants)) for s in shards])


def test_a_sampled_page_keeps_its_evidence_to_the_bit():
    drawn, host = _population()
    shard = _hosts_of(drawn, host, [0, 2, 3, 5])
    found = signal_evidence_of(shard)
    rows = np.random.default_rng(1).permutation(4 * PER_HOST)[:60]
    columns = sampled_signals(shard, rows)
    assert list(columns) == [name for name, _ in COLUMNS]
    batch = pa.RecordBatch.from_pydict(columns, schema=pa.schema(COLUMNS))
    batch.validate(full=True)
    at, evidence, _ = _signals(batch, found.sources)
    known = np.isin(rows, found.row)
    assert at.tolist() == np.flatnonzero(known).tolist() and 30 < known.sum() < 60
    wanted = take(found.evidence, np.searchsorted(found.row, rows[known]))
    for name in FIELDS:
        assert np.array_equal(getattr(evidence, name), getattr(wanted, name)), name


def test_what_a_split_host_tells_together_is_that_of_all_its_parts():
    """Bundles from the sample are those of one shard, and are put in the order of another shard's sources."""
    drawn, host = _population(20)
    signals = drawn.signals.copy()
    signals[:, 1] = signals[:, 0]
    drawn, one = _with(drawn, signals), np.zeros(len(host), np.int64)
    together = np.bincount(drawn.page, signals[:, 0], len(host))
    whole = shard_of(drawn, one, NAMES, host_hash=np.array([7], np.uint64), together=together)
    sample = sampled_signals(whole, np.arange(len(host)))
    _, _, heard = _signals(pa.RecordBatch.from_pydict(sample, schema=pa.schema(COLUMNS)), list(NAMES))
    found = signal_evidence_of(whole)
    for field in fields(heard):
        assert np.array_equal(getattr(heard, field.name), getattr(found.heard, field.name)), field
    overview = _sample(whole, giants=(7,))
    rate = np.full(overview.giant_sample.num_rows, 0.4)
    learned = learn_trust(overview.sample, rate[: overview.sample.num_rows], overview.giant_sample, rate)
    bundles = learned.giant(7, list(NAMES)).bundles
    assert bundles.parent.tolist() == [[-1, 0, -1]] and bundles.share[0, 1] > 0.8
    more = learned.giant(7, ["cdn", "indexnow", "ping"]).bundles
    assert more.parent.tolist() == [[-1, -1, 1]] and more.share[0, 2] == bundles.share[0, 1]
    assert not learned.giant(7, ["ping", "sitemap"]).bundles.share.any()


def test_pages_that_nobody_listens_to_are_null():
    drawn, host = _population()
    whole = _hosts_of(drawn, host, [0, 5])
    rows = np.arange(2 * PER_HOST)
    columns = sampled_signals(whole, rows)
    batch = pa.RecordBatch.from_pydict(columns, schema=pa.schema(COLUMNS))
    assert batch.column("signal_exposure_days").null_count == PER_HOST
    assert batch.column("signal_source")[PER_HOST].as_py() == []
    at, evidence, _ = _signals(batch, ["indexnow"])
    assert at.tolist() == list(range(PER_HOST))
    assert np.array_equal(evidence.row_signals, signal_evidence_of(whole).evidence.row_signals)
    # A shard without any signal gives rows of the same kind.
    none = sampled_signals(_hosts_of(drawn, host, [4]), np.arange(5))
    empty = pa.RecordBatch.from_pydict(none, schema=pa.schema(COLUMNS))
    assert empty.column("signal_exposure_days").null_count == 5
    assert sum(map(len, empty.column("signal_row_count").to_pylist())) == 0
    assert len(_signals(empty, [])[0]) == 0


def _same(a: LearnedTrust, b: LearnedTrust) -> None:
    assert a.sources == b.sources
    assert a.prior.missed_share == b.prior.missed_share
    assert np.array_equal(a.prior.signal_weight, b.prior.signal_weight)
    assert a.giants.keys() == b.giants.keys()
    for name, shared in a.giants.items():
        for one, other in zip(shared, b.giants[name], strict=True):
            for field in fields(one):
                assert np.array_equal(getattr(one, field.name), getattr(other, field.name)), field


def _learn(overview: Overview) -> LearnedTrust:
    def rates(rows: pa.RecordBatch) -> np.ndarray:
        return 0.05 + (rows.column("url_hash").to_numpy() % 7) / 10  # of the page alone

    sample, giants = overview.whole_sample, overview.giant_sample
    return learn_trust(sample, rates(sample), giants, rates(giants))


@pytest.mark.parametrize(
    "cut",
    [[[0, 1, 2, 3, 4, 5]], [[0, 2, 4], [1, 3, 5]], [[5], [3], [1], [0], [2], [4]], [[4, 5], [0, 1, 2, 3]]],
)
def test_the_number_of_shards_and_their_sources_do_not_matter(cut):
    drawn, host = _population()
    wanted = _learn(_sample(_hosts_of(drawn, host, list(range(HOSTS)))))
    assert wanted.sources == NAMES and wanted.giants == {}
    learned = _learn(_sample(*(_hosts_of(drawn, host, hosts) for hosts in cut)))
    _same(learned, wanted)


def test_the_prior_is_the_mean_of_hosts_by_what_is_known_of_them():
    drawn, host = _population(k=12)
    shard = _hosts_of(drawn, host, list(range(HOSTS)))
    prior = _learn(_sample(shard)).prior
    precision = -np.expm1(-prior.signal_weight)
    assert precision[0] > 0.6 > precision[2] > precision[1]  # two hosts each, of 0.9, 0.2 and 0.6
    # What one night has learned does not make the next host certain.
    assert (prior.weight_strength == default_prior(N_SOURCES).weight_strength).all()
    assert 0.4 < prior.missed_share < 0.9


def test_a_flood_of_one_host_is_one_bad_host():
    """Thousands of false signals of one host, and nine hosts with a few dozen true ones."""
    unknown = default_prior(1)
    flooded, good = 1e-4, 1.5
    weight = np.array([[flooded], *[[good]] * 9])
    covariance = np.zeros((10, 2, 2))
    covariance[:, 0, 0] = 0.02
    covariance[0, 1, 1], covariance[1:, 1, 1] = 1e-3, 0.05
    prior = prior_of_hosts(Pooled(np.full(10, 0.4), weight, covariance), unknown)
    without = prior_of_hosts(Pooled(np.full(9, 0.4), weight[1:], covariance[1:]), unknown)
    precision = [-np.expm1(-p.signal_weight[0]) for p in (prior, without)]
    assert 0.85 < precision[0] / precision[1] < 0.95
    assert without.signal_weight[0] == pytest.approx(good, rel=0.15)
    assert prior.missed_share == pytest.approx(0.4, abs=0.05)


def test_hosts_of_which_nothing_is_known_leave_the_prior_alone():
    unknown = default_prior(2)
    strength = np.append(unknown.missed_strength, unknown.weight_strength)
    hosts = Pooled(
        np.full(50, 3.0), np.full((50, 2), 4.0), np.repeat(np.diag(1 / strength)[None], 50, axis=0)
    )
    prior = prior_of_hosts(hosts, unknown)
    np.testing.assert_allclose(prior.signal_weight, unknown.signal_weight, rtol=1e-12)
    assert prior.missed_share == unknown.missed_share


def _split(drawn: Simulated, host: np.ndarray, parts: int) -> list[ShardTables]:
    """Host 2 spread over shards by its pages, the others whole in the first."""
    shards = [_hosts_of(drawn, host, [0, 1, 3, 4, 5])]
    for part in range(parts):
        of = host.copy()
        mine = np.flatnonzero(host == 2)
        of[mine[np.arange(len(mine)) % parts != part]] = 99
        shards.append(_hosts_of(drawn, np.where(of == 2, 2, np.where(of == 99, 99, 98)), [2]))
    return shards


@pytest.mark.parametrize("parts", [1, 3, 5])
def test_a_split_host_is_learned_from_all_its_parts(parts):
    drawn, host = _population()
    giant = 3  # hash of host 2
    wanted = _learn(_sample(_hosts_of(drawn, host, list(range(HOSTS))), giants=(giant,)))
    assert list(wanted.giants) == [giant] and wanted.giants[giant].pooled.signal_weight.shape == (1, 3)
    _same(_learn(_sample(*_split(drawn, host, parts), giants=(giant,))), wanted)
    rows = np.isin(drawn.page, np.flatnonzero(host == 2))
    np.testing.assert_allclose(wanted.giants[giant].rates.signals[0], drawn.signals[rows].sum(axis=0))
    # And the prior is as if it were not split.
    plain = _learn(_sample(_hosts_of(drawn, host, list(range(HOSTS)))))
    np.testing.assert_array_equal(plain.prior.signal_weight, wanted.prior.signal_weight)


def test_a_split_host_without_signals_is_not_known():
    drawn, host = _population()
    learned = _learn(_sample(_hosts_of(drawn, host, list(range(HOSTS))), giants=(6,)))
    assert learned.giants == {} and learned.sources == NAMES


def test_without_any_signal_there_is_nothing_to_learn():
    drawn, host = _population()
    overview = _sample(_hosts_of(drawn, host, [4]))
    assert overview.sample.schema.equals(SAMPLE)
    learned = _learn(overview)
    assert learned.sources == () and learned.giants == {}
