"""Finding new pages: which sources to fetch again for the links that they show.

A *source* is a page that is fetched for its links, a *target* what a link names. k sources are refreshed in
each step; the yield of a refresh are targets that no refresh of an earlier step has shown. What is learned is
in arrays over sources, and what sources share is in sums, so a batch of sources is a slice of them.

    items        `Items`, sources that share budgets, and `Seen`, what refreshes of a step showed
    picking      the k best of each budget; draws that are keyed by source and step
    lifetimes    how long links stay: what is on a source after so many hours
    hours        at which hours of the day new links come
    yields       new links an hour, with what a first look tells of it
    answers      sources that do not answer
    links        from visit to visit of the job: which came, which stayed
    rules        crawlers of the literature, simple ones, and by elapsed time
    pham         the crawler of Pham et al. 2018
    planner      recrawl's own: start here
    sums, shared what a job on state keeps of visits, and what sources share; prior is what follows
    pricing      one price of a refresh for all sources, and when each is due at it
    drawing      the same for scores that are drawn by source and hour
    regressed    the same for the crawler of Pham et al.
    presences    what sources showed, cut into steps; replay and oracle try crawlers on it, metrics judge
    drawn        histories drawn with the statistics of the paper

Schulam and Muslea 2023, "Improving the Exploration/Exploitation Trade-Off in Web Content Discovery".

Uses `numerics`.
"""
