"""`recrawl diff` after real nights: it names what was done to the second night."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.look import diff_report
from tests.pipelines.jobs import Night, at, command, crawls, nightly
from transforms.finished.comparing import CAUSES

HOSTS = [f"h{i}.test" for i in range(6)]
LIMITS = [{"host": "h1.test", "max_per_day": "3"}, {"host": "h2.test", "max_per_day": "2"}]


def log() -> list[dict[str, Any]]:
    """Ten pages a host, crawled for 20 days, each changing at its own pace."""
    rng = np.random.Generator(np.random.Philox(key=11))
    rows = []
    for host in HOSTS:
        for page in range(10):
            version = np.cumsum(rng.random(20) < rng.uniform(0.05, 0.9))
            rows += crawls(f"https://{host}/{page}", "".join(chr(65 + v) for v in version), first_day=5.0)
    return rows


def clicks(days: range, factor: int = 1) -> list[dict[str, Any]]:
    """Requests of every page; those of the first host times `factor`."""
    return [
        {
            "url": f"https://{host}/{page}",
            "day": at(day)[:10],
            "clicks": (page + 1) * (factor if not i else 1),
        }
        for i, host in enumerate(HOSTS)
        for page in range(10)
        for day in days
    ]


class Nights:
    """A first night, and second ones that differ from an uneventful one in just one thing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.first = nightly(
            folder,
            "first",
            observations=log(),
            requests=clicks(range(10, 26)),
            hosts=LIMITS,
            budget=40,
            as_of=at(26),
        )

    def second(self, name: str, **options: Any) -> Night:
        usual = {
            "observations": crawls("https://h5.test/0", "Z", first_day=26.2),
            "requests": clicks(range(26, 27)),
            "hosts": LIMITS,
            "budget": 40,
            "as_of": at(27),
            "state": self.first.folder / "state",
            "flags": ["--allow_shrink"],
        }
        night = nightly(self.folder, name, **(usual | options))
        assert night.code == 0, night.complaints
        return night


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    return Nights(tmp_path_factory.mktemp("diff"))


@pytest.fixture(scope="module")
def quiet(nights: Nights) -> Night:
    return nights.second("quiet")


def diff(*arguments: Any) -> str:
    code, printed, complaints = command("diff", *map(str, arguments))
    assert code == 0, complaints
    return printed


def document(*arguments: Any) -> dict[str, Any]:
    found = json.loads(diff(*arguments, "--json"))
    assert isinstance(found, dict)
    return found


def main_cause(text: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith("  main cause")]
    return line.removeprefix("  main cause").strip()


def test_half_the_budget(nights):
    half = nights.second("half", budget=20)
    text = diff(nights.first.folder, half.folder)
    assert main_cause(text).startswith("multiplier: ") and "budget 40 -> 20" in main_cause(text)
    found = document(nights.first.folder, half.folder)
    assert found["options"] == {"allow_shrink": [False, True], "budget_per_day": [40.0, 20.0]}
    assert found["crawl_rate_per_day"] == pytest.approx([40, 20])
    assert sum(c["net_per_day"] for c in found["causes"]) == pytest.approx(-20)
    assert found["causes"][0]["cause"] == "multiplier"
    assert found["ratios"]["crawl_rate"]["p50"] < 0.8


def test_a_host_with_a_new_limit(nights):
    tight = nights.second("tight", hosts=[*LIMITS, {"host": "h4.test", "max_per_day": "1"}])
    assert main_cause(diff(nights.first.folder, tight.folder)).startswith("host limit")
    found = document(nights.first.folder, tight.folder)
    assert found["hosts"]["newly_at_limit"] == 1
    (host,) = found["hosts_newly_at_limit"]
    assert host["host"] == "h4.test" and host["at_limit"] == [False, True]
    assert host["crawl_rate_per_day"][1] == pytest.approx(1.0)
    why = host["causes_per_day"]
    assert min(why, key=why.__getitem__) == "host_limit"
    text = diff(nights.first.folder, tight.folder, "--host", "H4.test")
    assert main_cause(text).startswith("host limit") and "limit not reached -> 1 crawls a day" in text


def test_a_host_without_its_limit(nights):
    freed = nights.second("freed", hosts=LIMITS[1:])
    found = document(nights.first.folder, freed.folder)
    (host,) = found["hosts_no_longer_at_limit"]
    assert host["host"] == "h1.test"
    why = host["causes_per_day"]
    assert max(why, key=why.__getitem__) == "host_limit"
    assert main_cause(diff(nights.first.folder, freed.folder)).startswith("host limit")


def test_requests_of_a_host(nights):
    busy = nights.second("busy", requests=clicks(range(26, 27), factor=100))
    assert main_cause(diff(nights.first.folder, busy.folder)).startswith("clicks")
    text = diff(nights.first.folder, busy.folder, "--host", "h0.test")
    assert main_cause(text).startswith("clicks")
    others = document(nights.first.folder, busy.folder, "--host", "h3.test")
    assert others["causes"][0]["cause"] == "multiplier"  # they pay for it
    assert others["crawl_rate_per_day"][1] < others["crawl_rate_per_day"][0]


def test_new_pages(nights):
    pages = [{"url": f"https://new.test/{i}", "importance": "1"} for i in range(40)]
    more = nights.second("more", pages=pages)
    found = document(nights.first.folder, more.folder)
    assert found["pages"] == {"same": 60, "new": 40, "lost": 0}
    assert found["hosts"]["new"] == 1
    back = document(more.folder, nights.first.folder)
    assert back["pages"] == {"same": 60, "new": 0, "lost": 40}


def test_a_page_of_the_log(nights, quiet):
    """It was crawled and had changed; nothing else happened."""
    found = document(nights.first.folder, quiet.folder, "--url", "https://h5.test/0")
    before, after = (n.page("https://h5.test/0") for n in (nights.first, quiet))
    for name in ("crawl_rate_per_day", "change_rate_per_day", "n_intervals", "weight", "limit"):
        assert found["page"]["columns"][name] == [before[name], after[name]], name
    moved = after["crawl_rate_per_day"] - before["crawl_rate_per_day"]
    assert sum(found["page"]["causes_per_day"].values()) == pytest.approx(moved, rel=1e-9)
    assert found["page"]["causes_per_day"]["change_observed"]
    slots = [len(n.slots_of("https://h5.test/0")) for n in (nights.first, quiet)]
    assert found["page"]["columns"]["slots"] == slots
    text = diff(nights.first.folder, quiet.folder, "--url", "https://h5.test/0")
    assert "https://h5.test/0" in text and "change rate, observed" in text


def test_slots_are_rates_and_deadlines(nights, quiet):
    found = document(nights.first.folder, quiet.folder)
    assert sum(pair[1] for pair in found["slots_by_reason"].values()) == quiet.counters["slots_used"]
    for row in found["hosts_by_slots"]:
        step = row["crawl_rate_per_day"][1] - row["crawl_rate_per_day"][0]
        assert row["slots"][1] - row["slots"][0] == pytest.approx(step + row["deadlines_per_day"])
        assert sum(row["causes_per_day"].values()) == pytest.approx(step, abs=1e-9)


@pytest.mark.parametrize("options", [{"output_format": "jsonl"}, {"num_shards": 3}], ids=str)
def test_other_files_of_the_same_night(options, nights, quiet):
    other = nights.second("other-" + "-".join(options), **options)
    text = diff(quiet.folder, other.folder)
    assert main_cause(text) == "none: no crawl rate moved"
    assert "  options             the same" in text


def test_another_objective_is_said_to_be_one(nights):
    other = nights.second("memoryless", objective="memoryless")
    text = diff(nights.first.folder, other.folder)
    assert main_cause(text).startswith("objective or weight") and "objective periodic -> memoryless" in text


def test_the_text_fits_a_terminal(nights, quiet):
    text = diff(nights.first.folder, quiet.folder)
    folders = [line for line in text.splitlines() if str(nights.folder) in line]
    assert all(len(line) <= 110 for line in text.splitlines() if line not in folders)


class TestWhichCauseIsFirst:
    @staticmethod
    def first(moves: dict[str, tuple[float, float]], moved: float, everything: bool = True) -> str:
        up, down = ([moves.get(n, (0.0, 0.0))[i] for n in CAUSES] for i in (0, 1))
        net = [u + d for u, d in zip(up, down, strict=True)]
        causes = diff_report._causes(net, up, down, moved, everything=everything)
        assert {c["cause"] for c in causes} == set(CAUSES)
        return str(causes[0]["cause"])

    def test_what_moved_rates_one_way_counts_in_all(self):
        assert self.first({"weight": (50, -60), "multiplier": (0, -90)}, moved=70) == "multiplier"

    def test_else_ups_and_downs_count(self):
        assert self.first({"weight": (50, -60), "change_observed": (12, -2)}, moved=50) == "weight"

    def test_the_multiplier_makes_up_for_others(self):
        """Within one budget what some pages get is taken from all others; of one host it is a cause."""
        moves = {"weight": (60, 0), "host_limit": (40, 0), "multiplier": (0, -100)}
        assert self.first(moves, moved=100) == "weight"
        assert self.first(moves, moved=100, everything=False) == "multiplier"


class TestErrors:
    @staticmethod
    def fails(expected: int, *arguments: Any) -> str:
        code, printed, complaints = command("diff", *map(str, arguments))
        assert code == expected and not printed, complaints
        assert "Traceback" not in complaints
        return complaints

    def test_a_night_that_is_not_committed(self, nights, tmp_path):
        said = self.fails(1, nights.first.folder, tmp_path)
        assert str(tmp_path) in said and "no finished night" in said and "--output folder" in said

    def test_a_missing_file(self, nights, tmp_path):
        broken = tmp_path / "broken"
        shutil.copytree(nights.first.folder, broken)
        path = next((broken / "pages").glob("shard-*"))
        path.unlink()
        assert path.name in self.fails(1, nights.first.folder, broken)

    def test_unknown_hosts_and_pages(self, nights, quiet):
        pair = nights.first.folder, quiet.folder
        assert "no page of it" in self.fails(1, *pair, "--host", "nowhere.test")
        assert "--host h1.test" in self.fails(1, *pair, "--url", "https://h1.test/nowhere")

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (["--host", "https://h1.test/"], "without scheme"),
            (["--url", "h1.test"], "not an absolute"),
            (["--host", "h1.test", "--url", "https://h1.test/"], "give one of them"),
            (["--top", "0"], "expected 1 to 50"),
            (["--workers", "0"], "expected 1 or more"),
            (["--hots", "h1.test"], "does not know"),
            (["gopher://x"], "does not know"),
        ],
    )
    def test_options(self, options, said, nights, quiet):
        assert said in self.fails(2, nights.first.folder, quiet.folder, *options)

    def test_an_unknown_file_system(self, nights):
        assert "nowhere://night" in self.fails(2, nights.first.folder, "nowhere://night")
