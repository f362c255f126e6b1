"""Sweeps: `grid` numbers configurations, `store` keeps rows, `worker` computes parts, `runner` feeds the workers."""
