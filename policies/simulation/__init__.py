"""Crawlers simulated: worlds that change, policies that see their own crawls only, how fresh copies were."""
