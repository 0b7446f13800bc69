"""When pages change, as a study of them: profiles of hours and weekdays, waits between changes, groups.

Uses `numerics` and `clocks`. `lengths` cuts intervals by hours of the week and by waits, `sums` adds them up
over any number of pages, `profiles` makes estimates with errors of the sums; start there. `groups` compares
groups of pages.
"""
