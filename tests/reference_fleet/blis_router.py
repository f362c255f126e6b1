"""BLIS's routing policies."""

from tests.reference_fleet.scorers import Memory, parse_profile, weighted_scores


class Router:
    """`choose` one of the candidate replicas for a request.

    `ties` are the recorded draws, one for each decision in which several candidates were best: the position taken.
    None: the first of the best is taken.
    """

    def __init__(self, policy, scorers, block_size, ties=None):
        self.policy = policy
        self.profile = parse_profile(scorers) if policy == "weighted" else None
        self.memory = Memory(block_size)
        self.decisions = 0
        self.ties = None if ties is None else iter(ties)

    def choose(self, request, replicas):
        chosen = replicas[self.position(request, replicas)]
        self.decisions += 1
        self.memory.learn(request, replicas, chosen)
        return chosen

    def position(self, request, replicas):
        match self.policy:
            case "round-robin":
                return self.decisions % len(replicas)
            case "least-loaded":
                return self.best([-replica.load for replica in replicas])
            case "always-busiest":
                return self.best([replica.load for replica in replicas])
            case "weighted":
                return self.best(weighted_scores(self.profile, request, replicas, self.memory))
        raise AssertionError(self.policy)

    def best(self, scores):
        tied = [i for i, score in enumerate(scores) if score == max(scores)]
        if self.ties is None or len(tied) == 1:
            return tied[0]
        drawn = next(self.ties)
        assert drawn in tied
        return drawn
