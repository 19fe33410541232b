"""The anonymous overlay against its bounds: `peersub bench dag`."""
