"""Figures and tables of papers, made again on our simulators."""
