"""Sitemaps in encodings of all sorts, declared, shown by their bytes, false and unknown."""

import codecs
import encodings.aliases
import random

import pytest

from tests.transforms.dialects.test_sitemaps import read_bytes
from transforms.dialects import sitemaps
from transforms.files.decoding import find_codec


def xml(declared: str, *paths: str) -> str:
    items = "\n".join(f"<url><loc>https://a.test/{p}</loc></url>" for p in paths)
    return f'<?xml version="1.0" encoding="{declared}"?>\n<urlset>\n{items}\n</urlset>'


def paths_of(folder, data, name="a.xml"):
    rows, rejected, _ = read_bytes(folder, data, name)
    return [r["url"].removeprefix("https://a.test/") for r in rows], [r["reason"] for r in rejected]


TEXTS = {
    "Shift_JIS": "日本語~",
    "x-sjis": "①",  # of Windows, not of the standard
    "windows-31J": "①",
    "EUC-JP": "日本語",
    "ISO-2022-JP": "日本語",
    "GBK": "汉字",
    "gb2312": "朱镕基",  # the second is no part of it
    "GB18030": "𠀀",
    "Big5": "漢字",
    "EUC-KR": "한글뷁",
    "ks_c_5601-1987": "한글",
    "windows-1251": "страница",
    "koi8-r": "страница",
    "iso-8859-1": "é",
    "windows-1252": "é€",
    "TIS-620": "ไทย",
    "utf-8": "é漢",
    "US-ASCII": "a",
}


@pytest.mark.parametrize("feed", [80, 81, 82, 83, 1 << 18])
@pytest.mark.parametrize("name", TEXTS)
def test_declared_encodings(name, feed, tmp_path, monkeypatch):
    """Wherever a piece of the file may end."""
    monkeypatch.setattr(sitemaps, "FEED_BYTES", feed)
    codec = {"x-sjis": "cp932", "windows-31J": "cp932", "gb2312": "gb18030", "EUC-KR": "cp949"}.get(
        name, name
    )
    text = TEXTS[name]
    data = xml(name, text, f"{text}/2").encode(codec)
    assert paths_of(tmp_path, data) == ([text, f"{text}/2"], [])
    other = b"\n " + data.replace(f'"{name}"'.encode(), f"'{name.upper()}'".encode())
    assert paths_of(tmp_path, other) == ([text, f"{text}/2"], [])


@pytest.mark.parametrize("declared", ["UTF-16", "UTF-8", "utf-32", "x-nope"])
@pytest.mark.parametrize("mark", [True, False])
@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-8"])
def test_bytes_count_before_what_is_declared(codec, mark, declared, tmp_path):
    data = ("\ufeff" * mark + xml(declared, "é漢𠀀")).encode(codec)
    if codec == "utf-8" and not mark and declared == "x-nope":
        assert paths_of(tmp_path, data) == ([], ["unreadable_file"])
    else:
        assert paths_of(tmp_path, data) == (["é漢𠀀"], [])


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-8"])
@pytest.mark.parametrize("mark", [True, False])
def test_plain_text_in_any_unicode(codec, mark, tmp_path):
    data = ("\ufeff" * mark + "https://a.test/é\r\n\nhttps://a.test/漢").encode(codec)
    rows, rejected, _ = read_bytes(tmp_path, data, "a.txt")
    assert [r["url"] for r in rows] == ["https://a.test/é", "https://a.test/漢"] and not rejected


@pytest.mark.parametrize(
    "name",
    [
        "x-nope",
        "zlib",
        "base64",
        "rot13",
        "punycode",
        "idna",
        "unicode_escape",
        "utf-7",
        "undefined",
        "aliases",
    ],
)
def test_what_is_no_encoding_is_one_rejected_row(name, tmp_path):
    rows, (bad,), _ = read_bytes(tmp_path, xml(name, "a").encode())
    assert not rows and bad["reason"] == "unreadable_file" and name in bad["sample"]


def test_no_name_that_python_knows_raises(tmp_path):
    """A file of ASCII is read or rejected as one; where it is read every URL is."""
    names = sorted({*encodings.aliases.aliases, *encodings.aliases.aliases.values()})
    read = 0
    for name in names:
        found, reasons = paths_of(tmp_path, xml(name, "a", "b").encode())
        assert (found, reasons) in ((["a", "b"], []), ([], ["unreadable_file"])), name
        read += bool(found)
    assert len(names) > 300 and read > 0.8 * len(names)


@pytest.mark.parametrize(("name", "bad"), [("Shift_JIS", b"\x81\x20"), ("euc-jp", b"\xff"), ("gbk", b"\xff")])
@pytest.mark.parametrize("n", [3, 20_000])
def test_what_comes_before_ill_formed_bytes_counts(name, bad, n, tmp_path):
    whole = xml(name, *(f"日{i}" for i in range(n)), "X", "Y").encode(name)
    found, reasons = paths_of(tmp_path, whole.replace(b"X", bad))
    assert found == [f"日{i}" for i in range(n)] and reasons == ["unreadable_file"]


@pytest.mark.parametrize("codec", ["utf-16", "utf-32", "shift_jis"])
def test_a_cut_within_a_character(codec, tmp_path):
    data = xml(codec, "a", "日").encode(codec)
    end = data.rindex("日".encode(codec.replace("16", "16-le").replace("32", "32-le"))) + 1
    assert paths_of(tmp_path, data[:end]) == (["a"], ["truncated_file"])


def test_line_numbers_are_those_of_the_file(tmp_path):
    data = "\ufeff\n" + xml("utf-16", "a", "b").replace("https://a.test/b", "日")
    _, (bad,), _ = read_bytes(tmp_path, data.encode("utf-16-le"))
    assert (bad["row"], bad["reason"]) == (5, "bad_url")


def test_entities_in_other_encodings_are_refused_alike(tmp_path):
    bomb = xml("{}", "&a;").replace("<urlset>", '<!DOCTYPE x [<!ENTITY a "b">]><urlset>')
    for name in ("utf-16", "shift_jis", "gbk"):
        assert paths_of(tmp_path, bomb.format(name).encode(name)) == ([], ["unsafe_xml"])


def test_random_bytes_never_raise(tmp_path):
    """Sound starts of all encodings with bytes changed, put in and left out."""
    random.seed(1)
    for i in range(300):
        name = random.choice([*TEXTS, "utf-16", "utf-32", "cp037", "hz"])
        codec = find_codec(xml(name).encode(), b"")[0]
        data = bytearray(xml(name, *["a"] * 5).encode(codec if i % 2 else "utf-16"))
        for _ in range(random.randrange(1, 6)):
            at = random.randrange(len(data))
            data[at : at + random.randrange(2)] = random.randbytes(random.randrange(3))
        rows, rejected, _ = read_bytes(tmp_path, bytes(data))
        assert len(rows) <= 6 and len(rejected) <= 6


def test_marks_are_told_by_the_longest():
    assert find_codec(codecs.BOM_UTF32_LE + b"<\0\0\0", b"") == ("utf-32-le", 4)
    assert find_codec(codecs.BOM_UTF16_LE + b"<\0?\0", b"") == ("utf-16-le", 2)
    # Zeros before a file are padding.
    assert find_codec(b"\0\0\0<urlset>", b"\0") == ("utf-8", 0)
