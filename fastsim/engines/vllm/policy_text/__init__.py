"""What a policy file (`engine.policy_file`) says: read, checked and tried in plain Python, without a compiler.

`fields` is what its functions can read, `syntax` the Python they may consist of, `checked` the operations that fail
aloud, `source` a file that passed. What kernels call is made of it in `policy_file`.
"""
