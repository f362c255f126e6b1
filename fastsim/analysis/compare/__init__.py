"""Paired comparisons of a sweep's rows: what one axis changes, with intervals."""
