"""Drawn worlds: their distributions, and that equal arguments give equal worlds."""

from dataclasses import replace

import numpy as np
import pytest

from policies.simulation.drawn import MEAN_REQUESTS, Drawn, Model, draw
from policies.simulation.offers import generate
from policies.simulation.streams import draw_streams, generator, uniform_instance


def equal(a: Drawn, b: Drawn) -> bool:
    mine, other = (
        [*vars(d.instance).values(), d.streams.change_time, d.streams.change_page, d.streams.signal_time]
        for d in (a, b)
    )
    return all(np.array_equal(x, y) for x, y in zip(mine, other, strict=True))


def test_the_world_of_the_papers() -> None:
    """Uniform is that of `policies.simulation.experiments`, bit for bit."""
    found = draw(Model(), 200, 30, 5, 2)
    instance = uniform_instance(200, generator(5, 2, "instance"), (0.25, 0.25), (0.1, 0.6))
    assert equal(found, Drawn(instance, draw_streams(instance, 30.0, 5, 2), np.zeros(200, np.int64)))
    assert not equal(found, draw(Model(), 200, 30, 5, 3)) and not equal(found, draw(Model(), 200, 30, 6, 2))


def test_worlds_differ_in_their_distributions_alone() -> None:
    m = 20_000
    plain, gamma = (draw(Model(kind, change_rate=0.3), m, 2, 0, 0).instance for kind in ("uniform", "gamma"))
    assert (np.argsort(plain.change_rate) == np.argsort(gamma.change_rate)).all()
    assert (plain.recall == gamma.recall).all()
    # Variances of the two distributions: (2 mean)^2 / 12 and mean^2 / shape.
    for rate, variance in ((plain.change_rate, 0.6**2 / 12), (gamma.change_rate, 0.09 / 0.5)):
        assert abs(rate.mean() - 0.3) < 5 * np.sqrt(variance / m)
        assert rate.var() == pytest.approx(variance, rel=0.1)
    zipf, alike = (draw(Model(requests=r), 100, 2, 0, 0).instance.request_rate for r in ("zipf", "equal"))
    ordered = np.sort(zipf)[::-1]
    assert ordered / ordered[0] == pytest.approx(1 / np.arange(1, 101))
    assert zipf.mean() == pytest.approx(MEAN_REQUESTS) and (alike == MEAN_REQUESTS).all()


def test_signals() -> None:
    model = Model()
    kinds = {
        "none": replace(model, recall=None),
        "true": replace(model, false_signals=(0.0, 0.0)),
        "noisy": model,
        "late": replace(model, false_signals=(0.0, 0.0), delay=3.0),
    }
    found = {name: draw(kind, 300, 50, 1, 0) for name, kind in kinds.items()}
    for drawn in found.values():
        assert (drawn.streams.change_time == found["none"].streams.change_time).all()
    assert not found["none"].streams.signal_time.size and not found["none"].instance.false_signal_rate.any()
    true, noisy = (set(found[n].streams.signal_time.tolist()) for n in ("true", "noisy"))
    assert true < noisy and true < set(found["true"].streams.change_time.tolist())
    late = found["late"].streams.signal_time
    # Mean delay 3: those of the last days do not arrive.
    assert len(true) * (1 - 3 / 50) == pytest.approx(len(late), rel=0.05)


def test_offers_change_in_the_hours_that_are_drawn() -> None:
    found, offers = draw(Model("offers", "clicks"), 80, 40, 3, 1), generate(80, 40, (3 << 32) + 1)
    assert (np.diff(found.site) >= 0).all()
    order = np.argsort(offers.merchant, kind="stable")
    hours = np.zeros((80, 40 * 24), np.int64)
    np.add.at(hours, (found.streams.change_page, np.ceil(found.streams.change_time * 24).astype(int) - 1), 1)
    assert (hours.T == offers.changed[:, order]).all()
    assert found.instance.request_rate == pytest.approx(offers.clicks.mean(axis=0)[order])
    assert found.impressions is not None and found.impressions.sum() > found.instance.request_rate.sum()
    assert len(found.labels["category"]) == len(found.labels["country"]) == 80
    order = np.lexsort((found.streams.change_time, found.streams.change_page))
    assert (order == np.arange(hours.sum())).all()


def test_what_there_is_not() -> None:
    with pytest.raises(ValueError, match="no world 'moon' with 'uniform' requests; there are uniform, gamma"):
        draw(Model("moon"), 5, 5, 0, 0)
    with pytest.raises(ValueError, match="only offers have clicks, not the world gamma"):
        draw(Model("gamma", "clicks"), 5, 5, 0, 0)
    with pytest.raises(ValueError, match="1 offers have no click in 2 days: take more pages"):
        draw(Model("offers", "clicks"), 1, 2, 0, 0)
