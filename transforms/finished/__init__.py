"""Nights that are done: read, compared, merged, exported.

Uses `batches`, `files`, `shards` and `kept`. Start with `nights`.
"""
