"""One more request may start while a tenth of the KV blocks is free."""

SHARE = 0.1


def cap(view):
    if view.free_blocks > SHARE * view.usable_blocks:
        return view.running + 1
    return view.running
