"""What was measured, as means and percentiles: results of load generators, engine logs, metrics, console tables."""
