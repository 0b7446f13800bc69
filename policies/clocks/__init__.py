"""When pages change: profiles of the hour and of age, learned of hosts, and what a crawl at an hour is worth.

Uses `numerics`. Start with `profile`, whose clock time all estimates are in; `learning` finds the
profiles, `worth` weighs instants, `planned` tells the search, `instants` gives crawls their hours.
"""
