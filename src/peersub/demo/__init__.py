"""`peersub demo`: the main job, end to end, by itself, with its results checked."""
