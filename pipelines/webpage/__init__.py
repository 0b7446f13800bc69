"""A finished night, or a store of nights, as one web page: `report.html`.

Uses `pictures` for colours, `command`, and `nightly` and `look` for words. Start with `report`; `sections`
says what is on the page, `parts` what it is made of, `report.html.j2` how that looks.
"""
