"""Special functions, sums and scrambled counters that know nothing of crawling.

Uses no other room. Start with `special`: P(2, x) and its inverse, on which every crawl rate rests.
"""
