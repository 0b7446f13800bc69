"""Nights on a store, one after the other: what is current, what is kept, which files are new, one at a time.

Uses `command`, `nightly`, `webpage` and `discovery`. Start with `night`; `store` is the layout. The contract
is in docs/operations.md.
"""
