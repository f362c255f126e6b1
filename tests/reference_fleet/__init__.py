"""The oracle of fleets in plain Python: routers in front of several replicas, and prefill/decode pools.

It imports nothing of fastsim. Each part is written from its rule, tested against recordings of the product itself
(`tests/golden_fleet`), and meant to be what a kernel is tested against.
"""
