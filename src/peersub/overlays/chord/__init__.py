"""Rebeca's filters over a Chord graph (Terpstra, Behnel, Fiege, Zeidler, Buchmann 2003).

Every node has a key on a circle and is the root of its own dissemination tree. The trees are stored
nowhere: a notification carries the arc of the circle that its receiver is responsible for, and each
hop hands disjoint parts of it to its fingers (`topology`). The overlay maintains its graph by its
own notifications (`locating`), and repairs it when nodes come, go, fail or were cut off (`joining`,
`stabilising`, `splits`).
"""
