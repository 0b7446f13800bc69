"""Errors that a caller can tell apart."""


class RecrawlError(Exception):
    """Base of all errors that recrawl raises on purpose. The message names value, limit and remedy."""


class InfeasibleError(RecrawlError):
    """No schedule can meet the constraints, e.g. floors that add up to more than the budget."""


class NotConvergedError(RecrawlError):
    """A search ended outside its tolerance. There is no answer rather than a wrong one."""
