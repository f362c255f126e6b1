"""What became of one request, and a run's timeline."""
