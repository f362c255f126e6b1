"""A sweep's folder as a page to read (`page`) and a picture (`picture`).

`question` says what was asked; `rows` reads the folder; `phase`, `tradeoff`, `effects` and `spread` work out what is
shown, each thinned by a rule that it states; `charts` draws it.
"""
