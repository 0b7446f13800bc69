"""Whole jobs: options, wiring and the command line."""
