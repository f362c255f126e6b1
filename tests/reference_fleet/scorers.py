"""The scorers of llm-d's inference scheduler as BLIS has them: each gives every candidate replica a score from 0 to 1.

A scorer is a function of the request, the candidates and what the router keeps (`Memory`).
"""

from collections import OrderedDict

from tests.reference_blis.cache import Chain

INDEX_BLOCKS = 10_000  # of a replica in the approximate prefix index


class PrefixIndex:
    """What the router believes a replica has cached, from what it sent there: the last `INDEX_BLOCKS` blocks."""

    def __init__(self):
        self.blocks = OrderedDict()  # least recently sent first

    def matched(self, keys):
        count = 0
        while count < len(keys) and keys[count] in self.blocks:
            count += 1
        return count

    def add(self, keys):
        for key in keys:
            self.blocks[key] = None
            self.blocks.move_to_end(key)
            if len(self.blocks) > INDEX_BLOCKS:
                self.blocks.popitem(last=False)


class Memory:
    """What a router remembers of its own decisions, over all replicas by number."""

    def __init__(self, block_size):
        self.block_size = block_size
        self.chain = Chain()
        self.index = {}
        self.cold_targets = []  # replicas that were given a request nobody had cached, least recently first

    def prompt_keys(self, request):
        """Identities of the full blocks of a prompt, each standing for all before it."""
        keys = []
        for first in range(0, request.prompt_tokens - self.block_size + 1, self.block_size):
            shared = request.prefix_group and first + self.block_size <= request.prefix_tokens
            content = ("group", request.prefix_group, first) if shared else ("request", request.index, first)
            keys.append(self.chain.key(keys[-1] if keys else None, content))
        return keys

    def index_of(self, replica):
        return self.index.setdefault(replica.number, PrefixIndex())

    def is_cold(self, request, replicas):
        return all(replica.cached_blocks(request) == 0 for replica in replicas)

    def learn(self, request, replicas, chosen):
        """A decision has fallen."""
        self.index_of(chosen).add(self.prompt_keys(request))
        if self.is_cold(request, replicas):
            if chosen.number in self.cold_targets:
                self.cold_targets.remove(chosen.number)
            self.cold_targets.append(chosen.number)


def less_is_better(values):
    """1 for the least, 0 for the most; 1 for all when they are equal."""
    least, most = min(values), max(values)
    return [1.0 if least == most else (most - value) / (most - least) for value in values]


def queue_depth(request, replicas, memory):
    return less_is_better([replica.seen.waiting for replica in replicas])


def running_requests(request, replicas, memory):
    return less_is_better([replica.seen.running for replica in replicas])


def vllm_dp(request, replicas, memory):
    return less_is_better([4 * replica.seen.waiting + replica.seen.running for replica in replicas])


def kv_utilization(request, replicas, memory):
    return [1 - replica.seen.kv_use for replica in replicas]


def load_aware(request, replicas, memory):
    return [0.5 * (1 - min(replica.seen.waiting, 128) / 128) for replica in replicas]


def load_balance(request, replicas, memory):
    return [1 / (1 + replica.load) for replica in replicas]


def active_requests(request, replicas, memory):
    most = max(replica.num_in_flight for replica in replicas)
    return [1.0 if most == 0 else (most - replica.num_in_flight) / most for replica in replicas]


def prefix_affinity(request, replicas, memory):
    keys = memory.prompt_keys(request)
    return [memory.index_of(replica).matched(keys) / len(keys) if keys else 0.0 for replica in replicas]


def precise_prefix_cache(request, replicas, memory):
    cached = [replica.cached_blocks(request) for replica in replicas]
    least, most = min(cached), max(cached)
    return [1.0 if least == most else (blocks - least) / (most - least) for blocks in cached]


def no_hit_lru(request, replicas, memory):
    if not memory.is_cold(request, replicas):
        return [0.5] * len(replicas)
    if len(replicas) == 1:
        return [1.0]
    numbers = [replica.number for replica in replicas]
    never = [number for number in numbers if number not in memory.cold_targets]
    ranked = never + [number for number in memory.cold_targets if number in numbers]
    return [1 - ranked.index(number) / (len(numbers) - 1) for number in numbers]


SCORERS = {
    "queue-depth": queue_depth,
    "running-requests": running_requests,
    "vllm-dp": vllm_dp,
    "kv-utilization": kv_utilization,
    "load-aware": load_aware,
    "load-balance": load_balance,
    "active-requests": active_requests,
    "prefix-affinity": prefix_affinity,
    "precise-prefix-cache": precise_prefix_cache,
    "no-hit-lru": no_hit_lru,
}
DEFAULT_PROFILE = "precise-prefix-cache:2,queue-depth:1,kv-utilization:1"


def parse_profile(text):
    """("name:weight,...") as pairs of a scorer and its share of all weights; "" is the default profile."""
    pairs = [pair.split(":") for pair in (text or DEFAULT_PROFILE).split(",")]
    total = sum(float(weight) for _, weight in pairs)
    return [(SCORERS[name], float(weight) / total) for name, weight in pairs]


def weighted_scores(profile, request, replicas, memory):
    scores = [0.0] * len(replicas)
    for scorer, share in profile:
        for i, score in enumerate(scorer(request, replicas, memory)):
            scores[i] += share * min(max(score, 0.0), 1.0)
    return scores
