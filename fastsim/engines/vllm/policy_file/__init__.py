"""A policy of one's own (`engine.policy_file`): up to four plain Python functions that the kernels call.

`fields` is what a function can read, `syntax` checks a file, `source` reads and tries it, `decisions` compiles what the
kernels call, `records` says which jumps stay allowed, `gates` are the kernels' side of it.
"""
