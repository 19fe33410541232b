"""What the semantic overlays share: a node that hosts a member for each distinct filter."""
