"""What a person asks of files and of nights: inspect, convert, diff, export.

Uses `command` and `nightly`. Start with `explain`.
"""
