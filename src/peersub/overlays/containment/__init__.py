"""The containment tree: an event goes down where the members on its way want it."""
