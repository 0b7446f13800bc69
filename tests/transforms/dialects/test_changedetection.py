"""The data folder of changedetection.io."""

from __future__ import annotations

import json

import pytest

from tests.transforms.dialects.reading import read, write
from transforms.batches.errors import InputError
from transforms.dialects.changedetection import looks_like

HOUR = 3600
T0 = 1_767_225_600


def folder(tmp_path, watches, histories, settings=None):
    store = {"watching": watches} | ({"settings": {"requests": settings}} if settings else {})
    for key, history in histories.items():
        (tmp_path / key).mkdir()
        (tmp_path / key / "history.txt").write_text(history)
    return write(tmp_path, json.dumps(store), "url-watches.json")


def seconds(found):
    return [int(r["fetched_at"].timestamp()) - T0 for r in found.rows]


def test_checks_that_found_nothing_are_there_where_they_tell_something(tmp_path):
    """Three contents, checked every hour: known to be the same until the check before the next was seen."""
    history = f"{T0},a.txt\n{T0 + 5 * HOUR},b.txt\n{T0 + 6 * HOUR},c.txt\n"
    watch = {"url": "https://a.test/", "last_checked": T0 + 9 * HOUR, "time_between_check": {"hours": 1}}
    found = read(folder(tmp_path, {"u1": watch}, {"u1": history}))
    assert found.forms == ["changedetection"]
    assert seconds(found) == [0, 4 * HOUR, 5 * HOUR, 6 * HOUR, 9 * HOUR]
    assert [r["changed"] for r in found.rows] == [None, False, True, True, False]
    # It changed twice in nine hours of watching, in intervals of an hour each; not at every visit.
    assert not found.rejected


def test_spans_come_from_the_watch_then_the_settings_then_the_program(tmp_path):
    history = f"{T0},a.txt\n{T0 + 48 * HOUR},b.txt\n"
    watches = {
        "own": {"url": "https://a.test/1", "time_between_check": {"days": 1, "hours": None}},
        "usual": {"url": "https://a.test/2", "time_between_check": {"hours": None}},
    }
    path = folder(tmp_path, watches, dict.fromkeys(watches, history), {"time_between_check": {"minutes": 30}})
    assert seconds(read(path)) == [0, 24 * HOUR, 48 * HOUR, 0, 48 * HOUR - 1800, 48 * HOUR]
    path.write_text(json.dumps({"watching": watches}))
    assert seconds(read(path))[3:] == [0, 45 * HOUR, 48 * HOUR]


def test_what_cannot_be_used_is_told(tmp_path):
    history = f"{T0},a.txt\nlast tuesday,b.txt\n{T0 + HOUR}\n\n{T0},again.txt\n"
    watches = {"a": {"url": "https://a.test/"}, "b": {"url": "https://b.test/"}, "c": {}, "d": 3}
    found = read(folder(tmp_path, watches, {"a": history}))
    assert seconds(found) == [0]
    assert found.reasons == [(-1, "no_url"), (-1, "no_url"), (2, "bad_history"), (3, "bad_history")]
    assert found.left_out == {"never_fetched": 1}


@pytest.mark.parametrize("text", ["{", "{}", '{"watching": 3}', '{"watching": {}, "settings": 1}'])
def test_a_file_that_is_no_list_of_watches_is_refused(tmp_path, text):
    with pytest.raises(InputError, match="no list of watches"):
        read(write(tmp_path, text, "url-watches.json"))


def test_it_is_told_by_its_name():
    assert looks_like("data/url-watches.json", b' {"note": 1')
    assert not looks_like("watches.json", b'{"watching": {}}') and not looks_like("url-watches.json", b"[")
