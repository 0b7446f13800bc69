"""All inputs of a job, whatever their format, to batches by shard; and what a person asks of files before.

Uses `batches`, `files`, `rows`, `dialects`, `shards` and `kept`. Start with `formats` (which reader a file
gets), then `sources` and `reading`.
"""
