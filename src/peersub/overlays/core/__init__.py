"""What all overlays share: causes, effects, messages, links, draws, delivery histories."""
