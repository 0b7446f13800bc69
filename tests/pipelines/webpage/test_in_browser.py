"""The page in a browser: no complaints, tables sort and filter. Only where there is a Chromium."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.jobs import at, crawls, nightly
from tests.pipelines.webpage.reading import read

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium here: apt-get install chromium")
# Sorts the hosts by pages twice and by name, then filters; what is seen each time goes where a dump has it.
SCRIPT = """
<script>
const tables = [...document.querySelectorAll("table")];
const hosts = tables.find(t => t.caption.textContent.startsWith("Hosts with most"));
const head = name => [...hosts.tHead.rows[0].cells].find(c => c.textContent === name);
const seen = () => [...hosts.tBodies[0].rows].filter(r => !r.hidden).map(r => r.cells[0].textContent);
const sorted = name => {
  head(name).querySelector("button").click();
  return [head(name).getAttribute("aria-sort"), document.querySelectorAll("th[aria-sort]").length, seen()];
};
const found = {down: sorted("pages"), up: sorted("pages"), host: sorted("host")};
const filter = hosts.parentElement.querySelector("input");
filter.value = "H1";
filter.dispatchEvent(new Event("input"));
found.filtered = seen();
found.status = filter.nextElementSibling.textContent;
document.querySelectorAll("details").forEach(details => { details.open = true; });
found.unmarked = [...document.querySelectorAll("th button, input, .scroll, summary, nav a")].filter(one => {
  one.focus();
  return document.activeElement !== one || getComputedStyle(one).outlineWidth !== "3px";
}).length;
found.wide = [document.documentElement.scrollWidth, innerWidth];
document.body.dataset.found = JSON.stringify(found);
</script>
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    rows = [
        row
        for i in range(12)
        for j in range(i + 1)
        for row in crawls(f"https://h{i}.test/{j}", "ABCD", at_day(j))
    ]
    night = nightly(folder, observations=rows, as_of=at(30))
    assert night.code == 0, night.complaints
    return night.folder / "report.html"


def at_day(j: int) -> float:
    return 20.0 + j % 5


def _in_browser(page: Path, folder: Path, width: int) -> tuple[dict[str, Any], str]:
    """What the script found, and what the browser said of the page."""
    copy = folder / "page.html"
    copy.write_text(page.read_text(encoding="utf-8").replace("</body>", f"{SCRIPT}</body>"), encoding="utf-8")
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    data = f"--user-data-dir={folder / 'profile'}"
    done = subprocess.run(
        [CHROMIUM, *flags, data, f"--window-size={width},900", copy.as_uri()],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    (body,) = read(done.stdout).all("body")
    return json.loads(str(body.attributes["data-found"])), done.stderr


@pytest.mark.parametrize("width", [1200, 500])
def test_tables_sort_and_filter_and_the_browser_has_no_complaints(page, tmp_path, width):
    found, said = _in_browser(page, tmp_path, width)
    assert not re.search("CONSOLE", said), said
    by_pages = [f"h{i}.test" for i in range(12)]
    assert found["up"] == ["ascending", 1, by_pages]
    assert found["down"] == ["descending", 1, by_pages[::-1]]
    assert found["host"] == ["ascending", 1, sorted(by_pages)]
    assert sorted(found["filtered"]) == ["h1.test", "h10.test", "h11.test"]
    assert found["status"] == "3 of 12"
    assert found["unmarked"] == 0, "who has no mouse cannot reach it, or not see where the keyboard is"
    assert found["wide"][0] <= found["wide"][1], "the page is wider than the window"
