"""What observers inside the network find out about who published: `peersub bench anonymity`."""
