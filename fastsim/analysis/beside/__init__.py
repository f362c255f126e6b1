"""Another simulator's results laid beside a run's."""
