"""Fleets: replicas of an engine behind a router, each request served by one of them.

Read `README.md` of this folder, then `routers.py` (who gets which request), `runs.py` (replicas run, rows are made) and
`merge.py` (what of many replicas adds up to one run).
"""
