"""`recrawl discover`: which sources to fetch again for new links, and the links found since.

discover    options and wiring: start here
summary     what a person sees at the end

Uses `command` and `nightly`.
"""
