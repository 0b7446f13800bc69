"""All inputs of a job, whatever their format, to batches by shard; and what a person asks of files before.

Uses `dialects` and `shards`. Start with `formats` (which reader a file gets), then `sources` and `reading`.
"""
