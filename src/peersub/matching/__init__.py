"""Many filters against one event or a batch: the naive twin, the small index, the compiled one.

`Matcher` is the door. It keeps few or new subscriptions in plain Python (`small_index`) and the
rest in immutable compiled segments (`segment`); NumPy, Arrow and numba are imported when they are
first needed.
"""
