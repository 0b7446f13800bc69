"""The other sequencer: each slot goes to the page of highest crawl value at its moment.

Uses `numerics`, `history`, `objectives`, `signalled` and `sequencing`. Start with `greedy`; `crawl_values`
names the values of the literature.
"""
