"""Files by name and byte: found, opened, unpacked, written and replaced. What is in them is not known here.

Uses `batches`. Start with `inputs` (which files a pattern means) and `sinks` (files that appear whole or not
at all).
"""
