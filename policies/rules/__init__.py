"""Policies to compare with: those of the literature, of today's crawlers, and bandits over them.

Uses all rooms before it. Start with `rate_policies`.
"""
