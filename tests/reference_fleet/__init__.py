"""The oracle of fleets: routers in front of several replicas, in plain Python.

It imports nothing of fastsim. Each router is written from its rule, tested against recordings of the product itself
(`tests/golden/fleet`), and meant to be what a kernel is tested against.
"""
