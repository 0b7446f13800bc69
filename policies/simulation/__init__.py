"""Crawlers simulated: worlds that change, policies that see their own crawls only, how fresh copies were.

Uses `numerics`, `clocks`, `history`, `estimation`, `objectives`, `signalled`, `optimum`, `predictors`,
`sequencing`, `greedy` and `rules`. Start with `histories`, or with `experiments` for those of the papers.

Two simulators, two clocks. Real histories are replayed in microseconds (`histories`, `intervals`, `metrics`).
Synthetic experiments of the papers run in float64 time units and slots:

    streams      `Instance` (m pages), `uniform_instance`, `draw_streams`, `draw_requests`, `optimal_rates`
    slots        `run_lanes`: which page each policy crawls in each slot, exactly as a full argmax would
    scoring      `accuracy` (exact over requests, in one or more windows), `sampled_accuracy`
    experiments  `Experiment` and `simulate`: policies by name on common random numbers, repetition by
                 repetition; `Result` holds accuracy (policies, repetitions), accuracy over time, crawl rates
"""
