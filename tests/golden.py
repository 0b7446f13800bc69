"""Golden numbers: answers to 15 digits and more from an independent high-precision computation."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "golden"


def load(name: str) -> dict[str, Any]:
    """The file `name`.json: "what", "tolerance" and "cases"; expected values are decimal strings."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
