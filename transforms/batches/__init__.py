"""How rows look and travel: schemas, columns, times, URLs, hashes, coders.

Uses no other room. Start with `schemas`; `columns` and `times` read whatever type a file has.
"""
