"""Runs of any configurations that an analysis asks for."""
