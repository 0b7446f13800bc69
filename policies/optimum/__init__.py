"""The search for the multiplier of the budget, the crawl rates that it allocates, and why a rate moved.

Uses `numerics`, `objectives` and `signalled`. Start with `search`; `page_block` goes in, `result` and
`allocation` come out.
"""
