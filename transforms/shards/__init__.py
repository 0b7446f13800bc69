"""Which pages a shard has, and what the catalogue says of them.

Uses `rows`. Start with `sharding` and `coding`.
"""
