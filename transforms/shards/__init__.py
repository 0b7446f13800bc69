"""Which pages a shard has, what the catalogue says of them, and what the night before left.

Uses `rows`. Start with `sharding` and `coding`; `carrying` reads state.
"""
