"""From the columns of a file to rows that are accepted or rejected, each with its reason.

Uses `batches`. Start with `normalise`.
"""
