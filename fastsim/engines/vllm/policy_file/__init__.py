"""A policy of one's own (`engine.policy_file`) as the kernels call it; what a file says is `policy_text`.

`decisions` compiles its functions and has their addresses, `views` is what they are given, `gates` are the kernels'
side of `admit` and `cap`, `records` says which jumps stay allowed, `trial` holds compiled against plain Python.
"""
