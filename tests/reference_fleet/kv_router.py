"""The KV router of NVIDIA Dynamo 1.6.1: cached blocks against the load of prefills and of distinct blocks.

Workers report blocks that they have stored and removed; everything else the router knows from its own decisions.
"""

from dataclasses import dataclass
from math import ceil


@dataclass
class Active:
    """A request that has not ended. `prefill_tokens`: not cached at its decision; 0 from its first token on."""

    worker: int
    blocks: list[int]
    prefill_tokens: int


@dataclass
class Decision:
    """What the router saw and thought, worker by worker.

    `load` holds prefill tokens and distinct blocks as if the request went to the worker, and the active requests
    without it. `cheapest` are the workers of least cost: one of them is chosen, uniformly at random.
    """

    overlap_blocks: list[int]
    load: list[list[int]]
    cost: list[float]
    cheapest: list[int]


class KvRouter:
    """`decide` and `start` a request, then `prefilled`, `finish`; `stored` and `removed` as the workers report them.

    `blocks` of a prompt are identities of its full blocks that stand for everything before them, too.
    """

    def __init__(
        self,
        num_workers,
        block_size,
        *,
        overlap_score_credit=1.0,
        overlap_score_credit_decay=0.0,
        prefill_load_scale=1.0,
        decode_active_request_weight=0.0,
    ):
        self.num_workers = num_workers
        self.block_size = block_size
        self.credit = overlap_score_credit
        self.decay = overlap_score_credit_decay
        self.prefill_load_scale = prefill_load_scale
        self.decode_active_request_weight = decode_active_request_weight
        self.cached = [set() for _ in range(num_workers)]
        self.active = {}

    def active_on(self, worker):
        return [request for request in self.active.values() if request.worker == worker]

    def overlap(self, worker, blocks):
        """Leading blocks of the prompt that the worker has."""
        count = 0
        while count < len(blocks) and blocks[count] in self.cached[worker]:
            count += 1
        return count

    def decide(self, prompt_tokens, blocks):
        workers = range(self.num_workers)
        active = [self.active_on(worker) for worker in workers]
        prefill = [sum(request.prefill_tokens for request in active[i]) for i in workers]
        overlap = [self.overlap(i, blocks) for i in workers]
        distinct = [len(set(blocks).union(*(request.blocks for request in active[i]))) for i in workers]
        cost = []
        for i in workers:
            ahead_blocks = (prefill[i] - min(prefill)) / self.block_size
            credit = self.credit / (1 + self.decay * ahead_blocks / ceil(prompt_tokens / self.block_size))
            to_prefill = (prefill[i] + prompt_tokens) / self.block_size - credit * overlap[i]
            cost.append(
                self.prefill_load_scale * max(0.0, to_prefill)
                + distinct[i]
                + self.decode_active_request_weight * len(active[i])
            )
        load = [
            [prefill[i] + prompt_tokens - overlap[i] * self.block_size, distinct[i], len(active[i])] for i in workers
        ]
        return Decision(overlap, load, cost, [i for i in workers if cost[i] == min(cost)])

    def start(self, request, worker, prompt_tokens, blocks):
        uncached = prompt_tokens - self.overlap(worker, blocks) * self.block_size
        self.active[request] = Active(worker, blocks, uncached)

    def prefilled(self, request):
        self.active[request].prefill_tokens = 0

    def finish(self, request):
        del self.active[request]

    def stored(self, worker, blocks):
        self.cached[worker].update(blocks)

    def removed(self, worker, blocks):
        self.cached[worker].difference_update(blocks)
