"""Made-up corpora, for samples, tests and benchmarks.

Uses no other room. Start with `synthesize`.
"""
