"""Which pages a shard has, and what the catalogue says of them.

Uses `batches` and `rows`. Start with `sharding` and `coding`.
"""
