"""What a crawl log says of a page, as it is kept from night to night: visits, intervals, flags.

Uses `numerics` and `clocks`. Start with `history`, which folds a night's observations into a `page_state`;
`evidence` is what estimators read of it.
"""
