"""`recrawl dynamics`: when pages change, as a report on a crawl log.

dynamics    options and wiring: start here
summary     what a person sees: the summary, pictures and the page

Uses `pictures`, `command`, `nightly`, `webpage` and `experiments`.
"""
