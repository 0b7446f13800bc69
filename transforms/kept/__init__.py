"""What a night keeps of its pages until the next one: their histories, and statistics beside them.

Uses `batches`, `files` and `shards`. Start with `protocol`, what a statistic is, and `statistics`, which
there are; `state` has the columns of histories, and `carrying` reads what the night before left.
"""
