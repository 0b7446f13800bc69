"""From crawl rates to slots: which page is crawled when, spread evenly and within the limits of hosts.

Uses `numerics` and `optimum`. Start with `sequencing`; `quotas` divides slots among shards before.
"""
