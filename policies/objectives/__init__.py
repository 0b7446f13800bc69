"""What a schedule maximises: the value of a page at a crawl rate, and the rate that a multiplier buys.

Uses `numerics`. Start with `objectives`; one of its own is a subclass there.
"""
