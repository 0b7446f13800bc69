"""Nights that are done: read, compared, merged, exported.

Uses the rooms below. Start with `nights`.
"""
