"""A server that serves one request after the other: what a new engine consists of, at its smallest."""
