"""The stages of a night, in order: folding, learning, solving, scheduling, commit.

Uses `batches`, `files`, `shards`, `kept` and `intake`. Start with `folding`, `learning`, `solving`,
`scheduling` and `commit`; the others serve one of these.
"""
