"""The simulator: the protocols as they are, under a virtual clock, on a network that may fail.

`engine.Simulation` drives nodes by causes and carries out their effects. Above it: `scenario` (what
a file asks for), `schedule` (that, drawn out into timed actions), `running` (a run with all its
checkers), `swarm` (scenarios drawn from a seed), `shrink` (a failing schedule made small) and
`fuzz` (many seeds).
"""
