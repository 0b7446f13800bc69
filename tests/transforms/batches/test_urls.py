"""Page and host keys."""

import pickle

import numpy as np
import pyarrow as pa
import pytest

from transforms.batches import urls
from transforms.batches.hashing import stable_hash
from transforms.batches.urls import HostTable, canonical_host, hash_urls, locate, trim


@pytest.mark.parametrize(
    ("url", "host"),
    [
        # Spellings of one host.
        ("http://EXAMPLÉ.test/", "xn--exampl-gva.test"),
        ("http://xn--exampl-gva.test/", "xn--exampl-gva.test"),
        ("http://exampl%C3%A9.test./", "xn--exampl-gva.test"),
        ("https://exampl%c3%a9.TEST:8443/a?b#c", "xn--exampl-gva.test"),
        ("http://exa\u00admpl\u00e9.test/", "xn--exampl-gva.test"),
        ("http://EXAMPL\u00c9\u3002test/", "xn--exampl-gva.test"),
        ("http://\uff45xampl\u00e9.test/", "xn--exampl-gva.test"),
        ("http://exampl%65%CC%81.test/", "xn--exampl-gva.test"),
        ("http://XN--EXAMPL-GVA.test:443/", "xn--exampl-gva.test"),
        ("http://a.test%2E/", "a.test"),
        # IP literals.
        ("http://0x7f.1/", "127.0.0.1"),
        ("http://127.0.0.1.:80/", "127.0.0.1"),
        ("http://2130706433/", "127.0.0.1"),
        ("http://[2001:db8::1]:8080/", "[2001:db8::1]"),
        ("http://[2001:0DB8:0:0::0001]/", "[2001:db8::1]"),
        # Ports, schemes and credentials are no part of the key.
        ("http://a.test:80/", "a.test"),
        ("http://a.test:8080/", "a.test"),
        ("https://a.test", "a.test"),
        ("https://u:p@a.test?q", "a.test"),
        ("https://a.test#f", "a.test"),
        ("https://a.test/100%", "a.test"),
        ("http://a.test/\\x@y", "a.test"),
        ("https://u:p%40x@a.test:80/", "a.test"),
        ("http://-a.b_c.-d.test/", None),
        ("http://a.-b_c.test-/", "a.-b_c.test-"),
        ("http://a_b.test/", "a_b.test"),
        ("HTTP://A.TEST/", "a.test"),
        # Unusable.
        ("", None),
        ("a.test/x", None),
        ("//a.test/x", None),
        ("ftp://a.test/", None),
        ("mailto:x@a.test", None),
        ("http://", None),
        ("http://./", None),
        ("http://a b.test/", None),
        ("http://1.2.3.4.5/", None),
        ("http://999999999999/", None),
        ("http://[::1/", None),
        ("http://a.test:99999/", None),
        ("http://" + "a" * 300 + "/", None),
        # Read as another host by another parser.
        ("http://a.test\\x/y", None),
        ("http://a.test\\@b.test/", None),
        ("http://a.test\\.b.test/", None),
        ("http:\\\\a.test/", None),
        ("http:/\\a.test/", None),
        ("http:a.test/", None),
        ("http:/a.test/", None),
        ("http:///a.test/", None),
        ("http://u@a.test@b.test/", None),
        ("http://a.test:80\\@b.test", None),
        ("http://[a.test]@b.test/", None),
        ("http://a.test\uff0f@b.test/", None),
        ("http://a.test @b.test/", None),
        ("http://@/", None),
        # Names that nobody can have.
        ("http://=1+1/", None),
        ("http://+1+1.test/", None),
        ("http://-1.test/", None),
        ("http://@1.test/", "1.test"),
        ("http://%3D1.test/", None),
        ("http://\uff1d1.test/", None),
        ("http://a,b.test/", None),
        ("http://a..test/", None),
        ("http://.test/", None),
        ("http://$(x).test/", None),
        ("http://'a'.test/", None),
        ("http://{a}.test/", None),
        ("http://*.test/", None),
    ],
)
def test_canonical_host(url, host):
    assert canonical_host(url) == host
    found = locate(pa.array([url]), HostTable())
    if host is None:
        assert urls.REASONS[found.reason[0]] == ("bad_url" if url else "no_url")
        assert found.host_hash[0] == 0
        assert found.hosts() == {}
    else:
        assert found.valid.tolist() == [True]
        assert found.hosts() == {stable_hash(host): host}
        # The URL itself stays as it is: port, spelling, credentials.
        assert found.urls.to_pylist() == [url]
        assert found.url_hash[0] == stable_hash(url)


CONTROLS = [*map(chr, (*range(32), *range(0x7F, 0xA0))), *"\u061c\u2028\u2029\u200e\u200f"]
CONTROLS += [*map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A)))]


def test_control_characters_within_a_url_are_no_part_of_one():
    """A line end makes two lines of a crawler's list, and others show a person another text than there is."""
    good = [
        "https://a.test/x",
        "https://a.test/\u00e9\u00a0\u200c\u200d\u2027\u202f",
        "https://a.test/\u2065 \u206a",
    ]
    bad = [f"https://a.test/{c}x" for c in CONTROLS] + [f"https://a{c}.test/" for c in CONTROLS]
    mixed = [url for pair in zip(bad, good * len(bad), strict=False) for url in pair]
    for kind in (pa.string(), pa.large_string(), pa.binary()):
        found = locate(pa.array(["https://first.test/", *mixed, None, *good], kind)[1:], HostTable())
        reasons = [urls.REASONS[r] for r in found.reason]
        assert reasons == ["bad_url", ""] * len(bad) + ["no_url"] + [""] * len(good)
    alone = locate(pa.array(["https://a.test/\u00e9"]), HostTable())
    assert alone.valid.all()


def test_hash_of_an_authority_ends_with_it():
    _, authority = hash_urls(
        pa.array(["https://a.test/x?y", "https://a.test?z", "https://a.test", "http://a.test/"])
    )
    assert authority[0] == authority[1] == authority[2] == stable_hash("https://a.test")
    assert authority[3] == stable_hash("http://a.test")


def test_white_space_around_a_url_does_not_make_another_page():
    array = pa.array(["https://a.test/x ", "https://a.test/x", "\t\u0000https://a.test/x\r\n", "  ", None])
    found = locate(array, HostTable())
    assert found.urls.to_pylist() == ["https://a.test/x"] * 3 + ["", None]
    assert len(set(found.url_hash[:3].tolist())) == 1
    assert [urls.REASONS[r] for r in found.reason] == ["", "", "", "no_url", "no_url"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_trim_keeps_the_type_and_does_nothing_where_nothing_is_to_do(kind):
    clean = pa.array(["a b", "", None, "c"], kind)
    assert trim(clean) is clean
    assert trim(pa.array([" a b ", "", None, "c\n"], kind)).equals(clean)
    assert trim(pa.array(["  x", "a b ", "y "], kind)[1:2]).to_pylist() == clean[:1].to_pylist()


def test_urls_above_8_kib_and_broken_bytes():
    long = b"https://a.test/" + b"x" * 8192
    array = pa.array(
        [long, b"https://a.test/" + b"x" * 8177, b"https://\xff.test/", b"https://a.test/\xff"], pa.binary()
    )
    found = locate(array, HostTable())
    assert [urls.REASONS[r] for r in found.reason] == ["url_too_long", "", "bad_url", ""]
    assert found.url_hash[0] == found.host_hash[0] == 0
    megabytes = pa.array([b"https://a.test/" + b"x" * 1_000_000] * 3, pa.binary())
    assert (locate(megabytes, HostTable()).reason == urls.URL_TOO_LONG).all()


def test_only_new_authorities_reach_the_library():
    table = HostTable()
    array = pa.array([f"https://host{i % 50}.test/{i}" for i in range(5000)])
    first = locate(array, table)
    assert table.parse_calls == 50
    again = locate(array, table)
    assert table.parse_calls == 50
    assert np.array_equal(first.host_hash, again.host_hash)
    assert len(first.hosts()) == 50
    assert len(locate(pa.array(["http://HOST1.test/"]), table).hosts()) == 1
    assert table.parse_calls == 51


def test_a_full_table_starts_anew_and_stays_right():
    small, large = HostTable(max_authorities=10), HostTable()
    for start in range(0, 100, 7):
        array = pa.array([f"https://host{i}.test/" for i in range(start, start + 7)])
        assert np.array_equal(locate(array, small).host_hash, locate(array, large).host_hash)
    assert len(small) <= 10 < len(large)


def test_a_copy_of_a_table_is_empty():
    table = HostTable()
    locate(pa.array(["https://a.test/"]), table)
    assert len(pickle.loads(pickle.dumps(table))) == 0


def test_rows_do_not_depend_on_their_batch():
    rng = np.random.default_rng(3)
    pool = [
        "https://a.test/1",
        "http://B.test/",
        "x",
        "",
        " https://c.test/ ",
        "http://[::1]/",
        "https://a.test?",
    ]
    values = [pool[i] for i in rng.integers(0, len(pool), 300)]
    whole = locate(pa.array(values), HostTable())
    for cut in (1, 7, 299):
        parts = [locate(pa.array(values[a : a + cut]), HostTable()) for a in range(0, 300, cut)]
        assert np.array_equal(np.concatenate([p.url_hash for p in parts]), whole.url_hash)
        assert np.array_equal(np.concatenate([p.host_hash for p in parts]), whole.host_hash)
        assert np.array_equal(np.concatenate([p.reason for p in parts]), whole.reason)


def test_no_rows():
    found = locate(pa.array([], pa.string()))
    assert len(found.url_hash) == len(found.host_hash) == 0
    assert found.hosts() == {}


def test_unparsable_urls_share_no_key():
    found = locate(pa.array([f"nonsense {i}" for i in range(10_000)]), HostTable())
    assert (found.reason == urls.BAD_URL).all()
    assert not found.host_hash.any()
