"""Exports of Search Console, in the languages and shapes that people have."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.transforms.dialects.reading import Read, read, write
from transforms.batches import schemas
from transforms.batches.errors import InputError
from transforms.batches.tally import Counts
from transforms.dialects import detect
from transforms.files.blocks import How
from transforms.intake.sources import plan_files, read_split
from transforms.rows.normalise import KINDS

DAY = 20634  # 2026-06-30
TOLD = {"requests_day": "2026-06-30"}
P1, P2 = "https://shop.test/p/1", "https://shop.test/p/2"
ENGLISH = f'Top pages,Clicks,Impressions,CTR,Position\n{P1},1234,"56,789",2.17%,8.4\n{P2},0,12,0%,35\n'
LANGUAGES = {
    "English": ENGLISH,
    "Spanish": "P\u00e1ginas principales;Clics;Impresiones;CTR;Posici\u00f3n\r\n"
    f"{P1};1.234;56.789;2,17 %;8,4\r\n{P2};0;12;;\r\n",
    "French": "Pages les plus populaires,Clics,Impressions,CTR,Position\n"
    f'{P1},1\u202f234,56\u00a0789,"2,17\u00a0%","8,4"\n{P2},0,12,"0 %",35\n',
    "Swiss": f"Top-Seiten;Klicks;Impressionen;CTR;Position\n{P1};1'234;56\u2019789;2.17%;8.4\n{P2};0;12;0%;35\n",
    "Hindi": f'\u0936\u0940\u0930\u094d\u0937,A,B,C,D\n{P1},"1,234","56,789",2%,8\n{P2},0,12,0%,35\n',
    "Arabic": "\u0627\u0644\u0635\u0641\u062d\u0627\u062a,A,B,C,D\n"
    f"{P1},\u0661\u066c\u0662\u0663\u0664,\u0665\u0666\u0667\u0668\u0669,2%,8\n{P2},\u0660,12,0%,35\n",
    "tabs": ENGLISH.replace('"56,789"', "56,789")
    .replace("Pages,", "Pages\t")
    .replace("1,1234,", "1\t1234\t"),
}
LANGUAGES["tabs"] = (
    f"Top pages\tClicks\tImpressions\tCTR\tPosition\n{P1}\t1234\t56,789\t2.17%\t8.4\n{P2}\t0\t12\t0%\t35\n"
)


def counts(found: Read) -> list[tuple[str, int, float, float]]:
    unit = schemas.COUNT_UNIT
    return [(r["url"], r["day"], r["clicks"] * unit, r["impressions"] * unit) for r in found.rows]


EXPECTED = [(P1, DAY, 1234, 56789), (P2, DAY, 0, 12)]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_pages_in_any_language(language: str, mark: str, tmp_path: Path):
    found = read(write(tmp_path, mark + LANGUAGES[language], "Seiten.csv"), "requests", **TOLD)
    assert found.forms == ["search_console"]
    assert counts(found) == EXPECTED


def export(
    folder: Path, pages: str = LANGUAGES["Spanish"], chart: str = "2026-06-29;1\n2026-06-30;2\n"
) -> Path:
    path = folder / "shop.test-Performance-on-Search-2026-07-02.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "Consultas.csv", "Consultas;Clics;Impresiones;CTR;Posici\u00f3n\nzapatos;1;2;50 %;1\n"
        )
        archive.writestr("P\u00e1ginas.csv", "\ufeff" + pages)
        archive.writestr("Gr\u00e1fico.csv", "Fecha;Clics\n" + chart)
        archive.writestr("Aparici\u00f3n.csv", "Aspecto;Clics;Impresiones;CTR;Posici\u00f3n\n")
        archive.writestr("Filtros.csv", "Filtro;Valor\nFecha;\u00daltimos 3 meses\n")
    return path


def test_a_zip_counts_on_the_days_of_its_chart(tmp_path: Path):
    found = counts(read(export(tmp_path), "requests"))
    assert sorted({day for _, day, _, _ in found}) == [DAY - 1, DAY]
    assert sorted(row for row in found if row[0] == P1) == [
        (P1, DAY - 1, 617, found[0][3]),
        (P1, DAY, 617, found[1][3]),
    ]
    assert {found[0][3], found[1][3]} == {28394, 28395}
    # As told, on one.
    assert counts(read(export(tmp_path), "requests", requests_day="2026-06-28"))[0][1:3] == (DAY - 2, 1234)
    # Without a chart the name says when it was made.
    assert counts(read(export(tmp_path, chart=""), "requests"))[0][1:3] == (DAY + 2, 1234)
    # A folder of them.
    assert counts(read(tmp_path, "requests"))[0][0] == P1


def test_clicks_of_a_month_are_not_those_of_a_day(tmp_path: Path):
    """28 days of which the export does not have the 20th yet, and a search for a day."""
    days = [f"2026-06-{day:02d}" for day in range(1, 29) if day != 20]
    chart = "".join(f"{day};1;2;50 %;1\n" for day in reversed(days))
    clicks = {f"https://shop.test/{i}": n for i, n in enumerate([2700, 2701, 0, *[1] * 400])}
    pages = "P\u00e1ginas;Clics;Impresiones;CTR;P\n" + "".join(
        f"{u};{n};{n + 30};1 %;1\n" for u, n in clicks.items()
    )
    path = export(tmp_path, pages + f"{P1};many;1;;\nno url;1;1;;\n", chart)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("Mas.csv", "Consultas;Clics;Impresiones;CTR;P\n2025-01-01;1;1;1 %;1\na;1;1;1 %;1\n")
    result = read(path, "requests")
    assert result.reasons == [(405, "bad_clicks"), (406, "bad_url")]
    found = counts(result)
    assert len(found) == len(clicks) * len(days) and found == counts(read(path, "requests"))
    expected = {DAY - 29 + int(day[-2:]) - 1 for day in days}
    assert {day for _, day, _, _ in found} == expected
    by_page: dict[str, list[float]] = {}
    for url, _, n, seen in found:
        assert n == int(n) and seen == int(seen)
        by_page.setdefault(url, []).append(n)
    assert {url: sum(parts) for url, parts in by_page.items()} == clicks
    assert sum(row[3] for row in found) == sum(n + 30 for n in clicks.values())
    assert max(by_page["https://shop.test/0"]) == 100 and max(by_page["https://shop.test/1"]) == 101
    # 400 single clicks: 15 a day on average, with a standard deviation of 4.
    singles = [0] * len(days)
    for i in range(3, 403):
        singles[by_page[f"https://shop.test/{i}"].index(1)] += 1
    assert min(singles) > 0 and max(singles) < 40


def test_a_chart_of_more_days_than_there_can_be_is_refused(tmp_path: Path):
    days = np.arange("2020-01-01", "2024-01-01", dtype="datetime64[D]")
    with pytest.raises(InputError, match="an export of 1461 days"):
        read(export(tmp_path, chart="".join(f"{day};1\n" for day in days)), "requests")


def test_a_table_without_dates_asks_for_the_day(tmp_path: Path):
    with pytest.raises(InputError, match=r"of which days .* --requests_day 2026-06-30"):
        read(write(tmp_path, ENGLISH, "Pages.csv"), "requests")
    assert counts(read(write(tmp_path, ENGLISH, "Pages-2026-06-30.csv"), "requests")) == EXPECTED
    with pytest.raises(InputError, match="--requests_day=30 June: expected a day"):
        read(write(tmp_path, ENGLISH, "Pages.csv"), "requests", requests_day="30 June")


@pytest.mark.parametrize(("rows", "truncated"), [(999, 0), (1000, 1), (1001, 0)])
def test_as_many_rows_as_are_exported_at_most_are_told(rows: int, truncated: int, tmp_path: Path):
    """A cut export: pages beyond the thousandth are not asked for less than those in it."""
    pages = "".join(f"https://shop.test/{i},1,2,50%,1\n" for i in range(rows))
    path = write(tmp_path, "Top pages,Clicks,Impressions,CTR,Position\n" + pages, "Pages.csv")
    notes = Counts()
    for split in plan_files(str(path), "requests", how=How(options=tuple(TOLD.items()))):
        read_rows = sum(b.num_rows for _, b in read_split(split, KINDS["requests"], notes=notes))
        assert read_rows == rows
    assert notes.totals().get("requests_gsc_truncated", 0) == truncated


@pytest.mark.parametrize("packed", [False, True])
def test_tables_with_dates(packed: bool, tmp_path: Path):
    """Of the API and the bulk export: rows of one page and day are summed later, as all requests are."""
    api = f"date,page,query,clicks,impressions,ctr,position\n2026-06-30,{P1},a,3,4,0.1,2.2\n2026-06-30,{P1},b,1,2,,\n"
    bulk = f'{{"data_date":"2026-06-30","url":"{P1}","clicks":3,"impressions":4,"is_amp":false}}\n'
    for name, text, expected in (
        ("api.csv", api, [(P1, DAY, 3, 4), (P1, DAY, 1, 2)]),
        ("bulk.jsonl", bulk, [(P1, DAY, 3, 4)]),
    ):
        data = gzip.compress(text.encode()) if packed else text.encode()
        found = read(write(tmp_path, data, name + ".gz" * packed), "requests")
        assert found.forms == ["search_console"] and counts(found) == expected


def test_fragments_join_their_page(tmp_path: Path):
    text = ENGLISH.replace(P2, P1 + "#:~:text=best%20price")
    assert [row["url"] for row in read(write(tmp_path, text, "p.csv"), "requests", **TOLD).rows] == [P1, P1]


@pytest.mark.parametrize("header", ["Search appearance,Clicks,Impressions,CTR,Position", "A;B;C;D;E"])
def test_a_header_alone_is_no_row_and_no_error(header: str, tmp_path: Path):
    """A header and no row: nothing was asked for."""
    found = read(write(tmp_path, header + "\n", "Search appearance.csv"), "requests")
    assert found.forms == ["search_console"] and found.lines == 0


def test_what_cannot_be_read_is_rejected_where_it_stands(tmp_path: Path):
    text = ENGLISH + f"\n{P1},many,1,,\n{P1},1\nnot a url,1,2,,\n{P1},2,-,,\n"
    found = read(write(tmp_path, text, "p.csv"), "requests", **TOLD)
    assert found.reasons == [(5, "bad_clicks"), (6, "column_count"), (7, "bad_url")]
    assert counts(found)[2:] == [(P1, DAY, 2, 0)]
    # Two periods side by side.
    wide = "Top pages,C1,C2,I1,I2,CTR,CTR2,P1,P2\n" + f"{P1},1,2,3,4,5%,6%,7,8\n"
    with pytest.raises(InputError, match="without comparing periods"):
        read(write(tmp_path, wide, "wide.csv"), "requests", **TOLD)


def test_damaged_zips(tmp_path: Path):
    whole = export(tmp_path).read_bytes()
    for data in (whole[:300], whole[:-30], whole[:200] + bytes(50) + whole[250:]):
        found = read(write(tmp_path, data, "x-2026-06-30.zip"), "requests", "search_console")
        assert [(r["row"], r["reason"]) for r in found.rejected] == [(-1, "unreadable_file")]


def test_a_zip_that_unpacks_to_more_than_an_export_is_refused(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("transforms.dialects.search_console.MAX_BYTES", 1 << 16)
    pages = ENGLISH + f"{P1},1,2,,\n" * 10_000
    with pytest.raises(InputError, match="more than 65536 bytes"):
        read(export(tmp_path, pages), "requests")


@pytest.mark.parametrize(
    "text",
    [
        b"url,day,clicks\nhttps://shop.test/,2026-01-01,3\n",
        b"url,day,date,clicks\nhttps://shop.test/,2026-01-01,a,3\n",
        b'{"url":"https://shop.test/","at":"2026-01-01","clicks":3}\n',
        b"PAR1\x15\x04",
        b"Obj\x01\x04",
        b"url\n",
        b"https://shop.test/p/1,3,4,5,6\n",
        b"PK\x03\x04" + bytes(22) + b"\x13\x00\x00\x00[Content_Types].xml",
        b"a\rb,c",
    ],
)
def test_other_files_are_not_claimed(text: bytes):
    assert detect("requests", "a.csv", text) is None


_WORDS = st.sampled_from(
    [P1, "1", "1,2", '"', "\n", ";", ",", "\t", "\r", "Clicks", "\ufeff", "2026-06-30", "\x00"]
)


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_WORDS, max_size=40).map("".join) | st.text(max_size=40))
def test_any_text_is_accounted_for(tmp_path: Path, text: str):
    path = write(tmp_path, text.encode("utf-8", "replace"), "a")
    try:
        found = read(path, "requests", "search_console", **TOLD)
    except InputError:
        return
    assert found.lines <= max(0, len([line for line in text.split("\n") if line.strip()]))
