"""Histories replayed day by day, and policies compared on them.

Uses `batches`, `files`, `rows`, `shards`, `kept`, `intake` and `night`. Start with `replaying` (from logs to
`worlds`) and `closed_loop`.
"""
