"""Speed and memory, as figures beside their targets. Nothing in `tests` asserts a time."""
