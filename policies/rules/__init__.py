"""Policies to compare with: those of the literature, of today's crawlers, and bandits over them.

Uses `numerics`, `history`, `estimation`, `objectives` and `optimum`. Start with `rate_policies`.
"""
