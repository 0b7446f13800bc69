"""From crawl rates to slots: which page is crawled when, spread evenly and within the limits of hosts.

Uses `numerics`, `clocks` and `history`. Start with `sequencing`; `quotas` divides slots among shards before.
"""
