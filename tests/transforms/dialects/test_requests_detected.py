"""Which format a file of requests is told to be: one, and for recrawl's own files none."""

from __future__ import annotations

import pytest

from transforms.dialects import detect

COMBINED = '192.0.2.7 - - [01/Jan/2026:03:04:05 +0100] "GET /p/1 HTTP/1.1" 200 512 "-" "Mozilla/5.0"\n'
NOISE = '192.0.2.7 - - [01/Jan/2026:03:04:05 +0100] "\\x16\\x03" 400 0 "-" "-"\n'
FILES = {
    "access_log": [
        COMBINED,
        NOISE,
        COMBINED + "192.0.2.7 line 2\n",
        "shop.test:443 " + COMBINED.replace("\n", "\r\n"),
        COMBINED.rsplit(' "-"', 1)[0] + "\n",
        COMBINED * 3 + COMBINED[:40],
        "\ufeff" + COMBINED,
    ],
    "w3c": [
        "#Software: x\r\n#Version: 1.0\r\n#Date: 2026-01-01 00:00:00\r\n#Fields: date time cs-method cs-uri-stem\r\n",
        "#Fields: date time cs-method cs-uri sc-status\n2026-01-01 00:00:00 GET / 200\n",
    ],
    "search_console": [
        "Top pages,Clicks,Impressions,CTR,Position\nhttps://shop.test/,1,2,50%,1\n",
        "date,page,clicks,impressions\n2026-01-01,https://shop.test/,1,2\n",
        '{"data_date":"2026-01-01","url":"https://shop.test/","clicks":1}\n',
        '{\n "rows": [\n  {\n   "keys": [\n    "https://shop.test/"\n   ],\n   "clicks": 1.0\n  }\n ]\n}\n',
    ],
    None: [
        "url,day,clicks\nhttps://shop.test/,2026-01-01,1\n",
        '{"url":"https://shop.test/","day":"2026-01-01","clicks":1}\n',
        '{"message":"' + COMBINED.strip().replace('"', '\\"') + '"}\n',
        '"' + COMBINED.strip().replace('"', '""') + '",1\n',
        "#!CDXJ\ntest,shop)/ 20260101020304 {}\n",
        "#Fields: a b c\n",
        "2026-01-01T02:03:05.010Z   200       5120 https://shop.test/p/1 L https://shop.test/ text/html #012\n",
        "line one\nline two\n",
        "\n",
        "",
    ],
}


@pytest.mark.parametrize(("form", "text"), [(form, text) for form, texts in FILES.items() for text in texts])
def test_one_format_a_file(form: str | None, text: str):
    for name in ("a.log", "clicks.csv", "access.log.1"):
        assert detect("requests", name, text.encode()) == form
    if form is not None:
        assert detect("observations", "a.log", text.encode()) is None
