"""The mathematics of crawling: NumPy in, NumPy out.

Nothing here knows Beam, Arrow, files, clocks or global random state.
"""
