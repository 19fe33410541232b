"""Overlays: who forwards what to whom.

Every overlay is a pure state machine, `handle(cause, now_ms) -> effects` (`core`). The simulator
and the runtime drive the same code. `flood`, `tree` and `chord` are folders of their own; `routing`
is the generalised routing algorithm that `tree` and `chord` share.
"""
