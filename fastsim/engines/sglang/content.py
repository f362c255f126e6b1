"""Which tokens are the same: shared ones depend on (group, position), all others on (request, position).

No token is ever stored. Tokens of two requests at one position are equal exactly when they have the same owner, a group
or a request; then all before them are equal too. The stop token alone has no owner and equals every other stop token.
"""

from fastsim._jit import helper


@helper
def common_tokens(s, i, j, limit):
    """Tokens, at most `limit`, with which the contents of two requests begin alike."""
    if i == j:
        return limit
    wl = s.wl
    common = min(wl.shared[i], wl.shared[j])
    a = wl.group[i]
    b = wl.group[j]
    while a != b:  # a group's number is above its parent's
        if a > b:
            common = min(common, wl.group_start[a])
            a = wl.group_parent[a]
        else:
            common = min(common, wl.group_start[b])
            b = wl.group_parent[b]
    if s.req.stop_position[i] == common and s.req.stop_position[j] == common:
        common += 1
    return min(common, limit)


@helper
def owner(s, i, position):
    """Who owns the token at a position: a group, or, behind all groups, the request itself."""
    wl = s.wl
    if position >= wl.shared[i]:
        return wl.group_parent.shape[0] + i
    group = wl.group[i]
    while wl.group_start[group] > position:
        group = wl.group_parent[group]
    return group


@helper
def page_key(s, i, end):
    """Which tokens the page of request `i` that ends at `end` holds, among pages behind equal tokens.

    Its last token's owner, as that settles all before it; the stop token has none, there the one before it settles.
    """
    if s.req.stop_position[i] == end - 1:
        return -1 - owner(s, i, end - 2)
    return owner(s, i, end - 1)
