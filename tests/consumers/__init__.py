"""Exports, given to the programs that read them."""
