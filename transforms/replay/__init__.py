"""Histories replayed day by day, and policies compared on them.

Uses `night`. Start with `replaying` (from logs to `worlds`) and `closed_loop`.
"""
