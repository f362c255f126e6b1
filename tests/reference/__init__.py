"""The oracle: plain-Python twins of the engines, written from the rules and not from the kernels.

Objects, lists and dictionaries where the kernels have arrays; nothing here is imported from the kernels, and nothing is
optimised. A rule stands in one place, beside the sentence it comes from, so that a reader can judge it.
"""
