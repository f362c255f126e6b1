"""The engines: one folder each, and what they share."""
