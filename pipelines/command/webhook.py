"""What a night tells others than the person at a terminal: one JSON document, and a webhook."""

from __future__ import annotations

import http.client
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from pipelines.command.errors import OptionsError
from pipelines.command.exit_codes import EXIT_BUSY, EXIT_OK
from pipelines.command.version import __version__

WAITS_SECONDS = (1.0, 5.0)
"""Between tries to reach a webhook."""
TIMEOUT_SECONDS = 10.0
_AGAIN = 500
"""Answers from here on are worth another try."""


@dataclass
class Told:
    """What a run came to.

    Attributes
    ----------
    outcome : str
        committed, nothing_to_do, nothing_to_read, handed_over (to a runner that goes on by itself) or failed.
    as_of : str or None
    folder : str or None
        Of the night.
    warnings : list of str
    quiet : bool
        Whether progress is not to be shown.
    """

    outcome: str = "failed"
    as_of: str | None = None
    folder: str | None = None
    warnings: list[str] = field(default_factory=list)
    quiet: bool = False

    def document(
        self, command: str, exit_code: int, message: str | None, in_force: dict[str, Any] | None
    ) -> dict[str, Any]:
        """The document that programs get; docs/operations.md has its keys."""
        return {
            "command": command,
            "outcome": self.outcome,
            "exit_code": exit_code,
            "message": message,
            "as_of": self.as_of,
            "folder": self.folder,
            "warnings": self.warnings,
            "in_force": in_force,
            "recrawl_version": __version__,
        }


def check_url(url: str) -> None:
    """Raise OptionsError where a webhook cannot be at a URL."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OptionsError([f"--notify={url}: expected the URL of a webhook, http://... or https://..."])


def notify(url: str, document: dict[str, Any]) -> None:
    """Send what a person should look at, a failure or warnings, to a webhook.

    That cannot fail the run: where nobody answers after three tries, standard error says so.
    """
    if document["exit_code"] == EXIT_BUSY or (document["exit_code"] == EXIT_OK and not document["warnings"]):
        return
    said = [document["message"] or "", *document["warnings"]]
    text = f"recrawl {document['command']}, {document['outcome']}: {' '.join(filter(None, said))}"
    body = json.dumps({"text": text, **document}).encode()
    # Its path may be a secret.
    where = urllib.parse.urlsplit(url).netloc.rpartition("@")[2]
    problem = ""
    for wait in (*WAITS_SECONDS, None):
        problem, again = _post(url, body)
        if not problem:
            return
        if wait is None or not again:
            break
        time.sleep(wait)
    print(f"recrawl: --notify: {where} was not told: {problem}; the run itself is as it was", file=sys.stderr)


def _post(url: str, body: bytes) -> tuple[str, bool]:
    """What went wrong, if anything, and whether to try again."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):
            return "", False
    except urllib.error.HTTPError as error:
        with error:
            return (
                f"it answered {error.code}",
                error.code >= _AGAIN or error.code == http.client.TOO_MANY_REQUESTS,
            )
    except (OSError, http.client.HTTPException, ValueError) as error:
        return str(getattr(error, "reason", error)) or type(error).__name__, True
