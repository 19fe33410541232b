"""The benchmark of the semantic overlays: Figures 3 and 4 of their paper, and what beats them."""
