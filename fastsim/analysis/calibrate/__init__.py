"""Step-time coefficients from a measured run."""
