"""What a night keeps of its pages until the next one: their histories, and statistics beside them.

Uses `shards`. Start with `state`, the columns of a page; `carrying` reads what the night before left.
"""
