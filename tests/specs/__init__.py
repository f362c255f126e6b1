"""Random valid specs, run through the public path with every index checked: `python -m tests.specs --count 20000`."""
