"""`recrawl export --to sqlite|postgres`: the old night stays until the new one is whole."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.jobs import command
from tests.transforms.schedules import HOUR_US, crawl, write_night
from transforms.finished import databases

ODD = "https://shop.test/%22,'\"é\\N;--"
OLD = [crawl(f"https://old.test/{i}", i * HOUR_US) for i in range(3)]
NEW = [crawl(f"https://shop.test/{i}", i * HOUR_US // 2 + 1, reason="new" if i else "due") for i in range(40)]
NEW.append(crawl(ODD, 22 * HOUR_US, weight=0.1 + 0.2, value=5e-324))


class Sqlite:
    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.output = str(folder / "schedule.db")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.output)) as database, database:
            return database.execute(query).fetchall()


class Postgres:
    kind = "postgres"

    def __init__(self, output: str) -> None:
        self.output = output

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.output) as database:
            found = database.execute(query.encode())
            return found.fetchall() if found.description else []


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A PostgreSQL of this test, behind a socket."""
    pytest.importorskip("psycopg", reason="no psycopg: it is in the extra postgres")
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    control = shutil.which("pg_ctl") or (str(places[-1]) if places else None)
    if control is None:
        pytest.skip("no PostgreSQL: it is in Debian's package postgresql")
    folder = tempfile.mkdtemp(prefix="pg-")  # a path of a socket is short
    user: dict[str, Any] = {}
    if os.geteuid() == 0:  # as whom it does not run
        owner = next((p for p in pwd.getpwall() if p.pw_name in ("postgres", "nobody")), None)
        if owner is None:
            pytest.skip("PostgreSQL does not run as root, and there is no user for it")
        os.chown(folder, owner.pw_uid, -1)
        user = {"user": owner.pw_uid}
    beside = str(Path(control).parent)
    options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"

    def run(*words: str) -> None:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, **user)
        assert done.returncode == 0, done.stderr

    run(f"{beside}/initdb", "-D", f"{folder}/data", "-A", "trust", "-U", "recrawl", "--no-sync")
    run(control, "-D", f"{folder}/data", "-l", f"{folder}/log", "-o", options, "-w", "start")
    yield f"postgresql://recrawl@/postgres?host={folder}"
    run(control, "-D", f"{folder}/data", "-m", "immediate", "-w", "stop")
    shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sqlite | Postgres]:
    if request.param == "sqlite":
        yield Sqlite(tmp_path)
        return
    found = Postgres(request.getfixturevalue("server"))
    yield found
    found.rows("DROP TABLE IF EXISTS recrawl_schedule, recrawl_night CASCADE")


def export(folder: Path, rows: list[dict[str, Any]], database: Sqlite | Postgres) -> tuple[int, str, str]:
    write_night(folder, [rows[::2], rows[1::2]])
    return command("export", str(folder), "--to", database.kind, "--output", database.output)


def test_the_table_is_the_schedule_in_order_of_time(tmp_path, database):
    code, out, _ = export(tmp_path / "night", NEW, database)
    assert code == 0 and "41 crawls to the table recrawl_schedule" in out
    names = ("url", "host", "reason", "crawl_rate_per_day", "weight", "value")
    found = database.rows(f"SELECT crawl, {', '.join(names)} FROM recrawl_schedule ORDER BY crawl")
    ordered = sorted(NEW, key=lambda row: row["due_at"])
    assert found == [(i, *(row[n] for n in names)) for i, row in enumerate(ordered)]
    due = [str(at) for (at,) in database.rows("SELECT due_at FROM recrawl_schedule ORDER BY due_at, crawl")]
    assert due == sorted(due) and due[0].startswith("2026-07-01") and "00:00:00.000001" in due[0]
    ((until, crawls),) = database.rows("SELECT until, crawls FROM recrawl_night")
    assert str(until).startswith("2026-07-02") and crawls == 41


def test_what_others_have_built_on_the_table_stays(tmp_path, database):
    export(tmp_path / "old", OLD, database)
    database.rows("CREATE VIEW mine AS SELECT url FROM recrawl_schedule WHERE reason = 'new'")
    assert export(tmp_path / "new", NEW, database)[0] == 0
    assert len(database.rows("SELECT * FROM mine")) == 39
    assert database.rows("SELECT count(*) FROM recrawl_schedule") == [(41,)]
    # A night with nothing to do is a schedule, too.
    assert export(tmp_path / "none", [], database)[0] == 3
    assert database.rows("SELECT count(*) FROM recrawl_schedule") == [(0,)]


def test_readers_see_the_old_night_until_the_new_one_is_whole(tmp_path, database, monkeypatch):
    export(tmp_path / "old", OLD, database)
    query = "SELECT url FROM recrawl_schedule ORDER BY crawl"
    before, seen, whole = database.rows(query), [], databases.merged

    def watched(night):
        for table in whole(night):
            for row in range(table.num_rows):
                yield table.slice(row, 1)
                seen.append(database.rows(query))

    monkeypatch.setattr(databases, "merged", watched)
    assert export(tmp_path / "new", NEW, database)[0] == 0
    assert len(seen) == 41 and all(rows == before for rows in seen)
    assert len(database.rows(query)) == 41

    def broken(night):
        yield next(whole(night)).slice(0, 2)
        raise databases.DatabaseError("the disk is gone")

    monkeypatch.setattr(databases, "merged", broken)
    after = database.rows(query)
    code, _, err = export(tmp_path / "again", OLD, database)
    assert code == 1 and "the disk is gone" in err
    assert database.rows(query) == after
    assert database.rows("SELECT crawls FROM recrawl_night") == [(41,)]


def test_a_database_that_cannot_be_had(tmp_path, monkeypatch):
    write_night(tmp_path / "night", [OLD])
    code, _, err = command("export", str(tmp_path / "night"), "--to=sqlite", f"--output={tmp_path}/none/x.db")
    assert code == 1 and f"{tmp_path}/none/x.db: unable to open" in err
    (tmp_path / "text").write_text("no database, whatever its name says " * 40)
    code, _, err = command("export", str(tmp_path / "night"), "--to=sqlite", f"--output={tmp_path}/text")
    assert code == 1 and "not a database" in err
    code, _, err = command("export", str(tmp_path / "night"), "--to=sqlite", "--output=hdfs://b/x.db")
    assert code == 2 and "needs a file on this machine" in err
    pytest.importorskip("psycopg")
    secret = f"postgresql://me:secret@/x?host={tmp_path}"
    code, _, err = command("export", str(tmp_path / "night"), "--to=postgres", f"--output={secret}")
    assert code == 1 and "PostgreSQL: " in err and "secret" not in err and "Traceback" not in err
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, _, err = command("export", str(tmp_path / "night"), "--to=postgres", "--output=x")
    assert code == 2 and "extra postgres" in err
