"""Why a night that was worked out is not committed."""

from __future__ import annotations

from policies.numerics.errors import RecrawlError


class TooManyRejectedError(RecrawlError):
    """More input rows were rejected than the team allows."""


class HistoryShrunkError(RecrawlError):
    """Known pages or input rows are gone since the previous night."""
