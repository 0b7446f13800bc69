"""The stages of `recrawl dynamics`: intervals between crawls to tables of when pages change.

tables     columns between stages and of the results
folding    a shard's rows to intervals, claims of dates and pages; start here
summing    intervals to sums of the groups that are shown
writing    sums to profiles, tables and results.json

Uses `batches`, `files`, `shards`, `kept`, `intake` and `night`.
"""
