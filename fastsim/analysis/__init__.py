"""Answers made of many simulations: calibration, recommendations, comparisons."""
