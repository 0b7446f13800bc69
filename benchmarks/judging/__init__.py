"""Whether what was said came: predicted changes, ranges of freshness, and what a learned model would add."""
