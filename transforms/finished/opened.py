"""A finished night opened for questions: its tables, and all that is known of one page or host.

For Parquet on this machine nothing of Beam is imported: an answer takes a fraction of a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from policies.objectives import objectives
from transforms.batches.hashing import stable_hash
from transforms.batches.urls import canonical_host, hash_urls, other_forms
from transforms.files.sinks import read_json
from transforms.finished.folders import (
    NightError,
    absent,
    check_manifest,
    damaged,
    shard_of,
    unreadable,
    weights_of,
)
from transforms.finished.misspelt import near
from transforms.shards.sharding import Layout

_NIGHT = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_SUGGESTED = 3
_MOST_HOSTS = 100_000
_KEPT = ("url", "baseline_at", "digest_hash", "last_modified_seen_at", "last_attempt_at")
"""Of state/, what says how the changes of a page were told."""


def nights_of(store: str) -> list[str]:
    """Folders of the finished nights of a store on this machine, oldest first; none where it is no store."""
    found = (p for p in Path(store).glob("nights/*") if _NIGHT.fullmatch(p.name))
    return sorted(str(p) for p in found if (p / "manifest.json").is_file())


@dataclass(frozen=True)
class OpenNight:
    """A finished night.

    Attributes
    ----------
    folder : str
    manifest : dict
    """

    folder: str
    manifest: dict[str, Any]

    @classmethod
    def open(cls, folder: str) -> OpenNight:
        """Of the output folder of a night, or of a store: then the newest night.

        Raises
        ------
        RecrawlError
            No finished night is there.
        """
        if "://" in folder:
            from transforms.finished.nights import Night

            night = Night.open(folder)
            return cls(night.folder, night.manifest)
        path = Path(folder)
        if not (path / "manifest.json").is_file():
            nights = nights_of(folder)
            if not nights:
                raise absent(folder)
            path = Path(nights[-1])
        file = path / "manifest.json"
        try:
            manifest = read_json(str(file))
        except OSError as e:
            raise NightError(f"{file}: cannot be read: {e.strerror}") from None
        except ValueError as e:
            raise damaged(str(file), e) from None
        return cls(str(path), check_manifest(manifest, str(file)))

    @cached_property
    def layout(self) -> Layout:
        """Where its pages lie."""
        split = self.manifest.get("split_hosts", {})
        return Layout(int(self.manifest["options"]["num_shards"]), Layout.parts_from_json(split))

    def pages(self, columns: Sequence[str] | None = None, *, host: str | None = None) -> pa.Table:
        """Rows of pages/, of all hosts or of one, of which only the shards are read.

        Parameters
        ----------
        columns : sequence of str, optional
            All if not given; what no file has is left out.
        host : str, optional
        """
        return self._of_host("pages", columns, host)

    def hosts(self, columns: Sequence[str] | None = None, *, host: str | None = None) -> pa.Table:
        """Rows of hosts/, as for `pages`."""
        return self._of_host("hosts", columns, host)

    def schedule(self, columns: Sequence[str] | None = None, *, host: str | None = None) -> pa.Table:
        """Rows of schedule/ in order of time, as for `pages`."""
        wanted = None if columns is None else [*columns, *(c for c in ("due_at", "url") if c not in columns)]
        found = self._of_host("schedule", wanted, host)
        found = found.sort_by([("due_at", "ascending"), ("url", "ascending")]) if found.num_rows else found
        return found if columns is None else found.select([c for c in columns if c in found.schema.names])

    def _of_host(self, kind: str, columns: Sequence[str] | None, host: str | None) -> pa.Table:
        if host is None:
            return self._read(kind, None, columns)
        wanted = None if columns is None else [*columns, *(["host"] if "host" not in columns else [])]
        found = self._read(kind, self.layout.shards_of(stable_hash(host)), wanted)
        if "host" in found.schema.names:
            found = found.filter(pc.equal(found.column("host"), host))
        return found if columns is None else found.select([c for c in columns if c in found.schema.names])

    def _read(self, kind: str, shards: Iterable[int] | None, columns: Sequence[str] | None) -> pa.Table:
        tables = list(self.tables(kind, columns, shards))
        return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})

    def tables(
        self, kind: str, columns: Sequence[str] | None = None, shards: Iterable[int] | None = None
    ) -> Iterator[pa.Table]:
        """Files of a kind that have rows, one after the other, as for `pages`."""
        wanted = None if shards is None else set(shards)
        for file in self.manifest["files"]:
            name = file["path"]
            if name.rpartition("/")[0] != kind or not file["rows"]:
                continue
            if wanted is None or shard_of(name) in wanted:
                yield self._table(name, columns)

    def _table(self, name: str, columns: Sequence[str] | None) -> pa.Table:
        if "://" in self.folder or not name.endswith(".parquet"):
            from transforms.finished.nights import read_table

            return read_table(self.folder, name, columns)
        path = Path(self.folder, *name.split("/"))
        try:
            file = pq.ParquetFile(path)
            known = file.schema_arrow.names
            return file.read(None if columns is None else [c for c in columns if c in known])
        except (OSError, pa.ArrowException) as e:
            raise unreadable(str(path), e) from None

    def explain(self, url: str) -> dict[str, Any]:
        """All that the night knows of a page, and why it is crawled as it is.

        Reads the shard of the page only.

        Raises
        ------
        NightError
            No such page; says which others may be meant.
        """
        host = canonical_host(url)
        if host is None:
            raise NightError(f"{url}: not an absolute http or https URL")
        host_hash, (hashed, _) = stable_hash(host), hash_urls(pa.array([url]))
        shard = int(self.layout.shard(np.array([host_hash], np.uint64), hashed)[0])
        pages = self._read("pages", [shard], None)
        mine = pages.filter(pc.equal(pages.column("url"), url)) if pages.num_rows else pages
        if not mine.num_rows:
            raise NightError(f"{url}: not in {self.folder}/pages/. {self._meant(url, host)}")
        page = mine.slice(0, 1).to_pylist()[0]
        slots = self._read("schedule", [shard], ["url", "due_at", "reason"])
        slots = slots.filter(pc.equal(slots.column("url"), url)) if slots.num_rows else slots
        crawls = sorted(slots.to_pylist(), key=lambda row: row["due_at"]) if slots.num_rows else []
        return {
            "kind": "page",
            **self._head(),
            "page": page,
            "kept": self._kept(url, shard),
            "crawls": [{"due_at": c["due_at"], "reason": c["reason"]} for c in crawls],
            "one_more_crawl_a_day": self._one_more(page),
            "first_crawl_a_day": self._first(page),
            "host": self._host_row(host),
        }

    def _kept(self, url: str, shard: int) -> dict[str, Any] | None:
        """What the night keeps of a page's visits; None where its state is no longer there."""
        try:
            state = self._read("state", [shard], _KEPT)
        except NightError:
            return None
        rows = state.filter(pc.equal(state.column("url"), url)).to_pylist() if state.num_rows else []
        return {name: value for name, value in rows[0].items() if name != "url"} if rows else None

    def explain_host(self, host: str, top: int = 5) -> dict[str, Any]:
        """The same of a host, with the pages that take most of its crawls.

        Raises
        ------
        NightError
            No such host.
        """
        row = self._host_row(host)
        if row is None:
            if not any(file["path"].startswith("hosts/") for file in self.manifest["files"]):
                raise NightError(
                    f"{self.folder}: an older night, which says nothing of hosts. Ask for a page of {host}, "
                    "or run that night again"
                )
            meant = self._meant_hosts(host)
            asked = f". Did you mean {' or '.join(meant)}?" if meant else ""
            raise NightError(
                f"{host}: no page of it in {self.folder}; a subdomain is a host of its own, and hosts/ has "
                f"all hosts of the night{asked}"
            )
        pages = self.pages(["url", "crawl_rate_per_day", "weight", "limit"], host=host)
        order = pages.sort_by([("crawl_rate_per_day", "descending"), ("url", "ascending")])
        rate, weight = (pages.column(n).to_numpy() for n in ("crawl_rate_per_day", "weight"))
        starved = (rate <= 0.0) & (weight > 0.0)
        return {
            "kind": "host",
            **self._head(),
            "host": row,
            "pages": pages.num_rows,
            "pages_never_crawled": int((rate <= 0.0).sum()),
            "weight": float(weight.sum()),
            "weight_never_crawled": float(weight[starved].sum()),
            "top": order.slice(0, top).to_pylist(),
        }

    def _head(self) -> dict[str, Any]:
        manifest = self.manifest
        return {
            "night": self.folder,
            "as_of": manifest["options"].get("as_of"),
            "weight_by": weights_of(manifest),
            "budget_per_day": manifest["budget_per_day"],
            "price": manifest["multiplier"],
        }

    def _host_row(self, host: str) -> dict[str, Any] | None:
        """The host's row; of a host in several shards the sum of its parts, of several sources the first."""
        rows = self.hosts(host=host).to_pylist()
        if not rows:
            return None
        first = dict(rows[0])
        if stable_hash(host) in self.layout.parts:
            parts = {row["pages"]: row for row in rows}.values()
            for name in ("pages", "crawl_rate_per_day", "slots"):
                first[name] = sum(row[name] for row in parts)
        limit = first.get("limit_per_day")
        first["room_per_day"] = None if limit is None else max(limit - first["crawl_rate_per_day"], 0.0)
        # Of the hosts that the manifest lists.
        beyond = [h["multiplier"] for h in self.manifest.get("hosts_at_limit", []) if h["host"] == host]
        first["price"] = self.manifest["multiplier"] + beyond[0] if beyond else None
        return first

    def _one_more(self, page: dict[str, Any]) -> float | None:
        """Requests a day that one more crawl a day would keep fresh; None where signals or ages decide."""
        if page.get("signal_rate_per_day") is not None or (page.get("clock") or "").endswith("age"):
            return None
        objective = objectives.get(self.objective)
        change = np.array([_planned(page)])
        now, more = (
            float(objective.freshness(np.array([page["crawl_rate_per_day"] + extra]), change)[0])
            for extra in (0.0, 1.0)
        )
        return float(page["weight"]) * max(more - now, 0.0)

    def _first(self, page: dict[str, Any]) -> float:
        """What the first crawls of a page that has none are worth, requests a crawl: weight / change rate."""
        return float(page["weight"]) / max(_planned(page), 1e-12)

    @property
    def objective(self) -> str:
        """That of pages without signals."""
        name = str(self.manifest["options"].get("objective", "periodic"))
        return "periodic" if name in ("signals", "auto") else name

    def _meant(self, url: str, host: str) -> str:
        """Pages of the night that a misspelt URL may mean."""
        known = self.pages(["url"], host=host)
        if not known.num_rows:
            meant = self._meant_hosts(host)
            asked = f"it has {' and '.join(meant)}" if meant else "is the host spelt right, and in the logs?"
            return f"The night has no page of {host}: {asked}"
        urls = known.column("url")
        lower = pc.equal(pc.utf8_lower(urls), url.lower())
        forms = pc.is_in(
            urls,
            value_set=pa.array(sorted({*other_forms(url), url.partition("?")[0], url.partition("#")[0]})),
        )
        meant = urls.filter(pc.or_(lower, forms)).to_pylist() or near(url, urls, _SUGGESTED)
        if not meant:
            return f"It has {known.num_rows} other pages of {host}"
        return f"Did you mean {' or '.join(meant[:_SUGGESTED])}?"

    def _meant_hosts(self, host: str) -> list[str]:
        """Hosts of the night that a misspelt one may mean; of very many hosts the one with or without www."""
        other = host.removeprefix("www.") if host.startswith("www.") else f"www.{host}"
        if self.hosts(["host"], host=other).num_rows:
            return [other]
        rows = sum(file["rows"] for file in self.manifest["files"] if file["path"].startswith("hosts/"))
        known = self.hosts(["host"]) if rows <= _MOST_HOSTS else None
        return near(host, known.column("host"), _SUGGESTED) if known is not None and known.num_rows else []


def _planned(page: dict[str, Any]) -> float:
    """How often the plan takes a page to change, a day: less often where its crawls have good hours."""
    return float(page["change_rate_per_day"]) / (page.get("clock_gain") or 1.0)
