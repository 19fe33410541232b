"""The report: what was read, matched, routed and found, for people.

`content` is the report as plain values, `gathering` makes its parts from DataFrames, `sections`
tells the story once as texts, tables and plots, and `terminal` and `page` show it.
"""
