"""What may be wrong with what is kept."""

from __future__ import annotations

from policies.numerics.errors import RecrawlError


class StateError(RecrawlError):
    """The previous night's state cannot be used."""
