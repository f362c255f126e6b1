"""The `cache_aware` policy of sglang-router 0.3.2 and vllm-router 0.1.17.

Both follow the longest prefix of the prompt that some earlier prompt had, unless the fleet is out of balance. They
differ in whose prefix it is: `owner="first"` (sglang-router) is the worker that was sent it first, for ever;
`owner="least_loaded"` (vllm-router) is the least loaded of all workers that were ever sent it.
"""

from tests.reference_fleet.load import InFlight, argmin


class CacheAware:
    """`route` prompts (any sequences of hashable tokens), `finish` requests.

    The tree of prompts never forgets. It is kept as a dictionary from every prefix ever seen to the workers that were
    sent a prompt beginning with it, in the order in which they first were.
    """

    def __init__(self, num_workers, owner, *, cache_threshold=0.3, balance_abs_threshold=64, balance_rel_threshold=1.5):
        assert owner in ("first", "least_loaded")
        self.owner = owner
        self.cache_threshold = cache_threshold
        self.balance_abs_threshold = balance_abs_threshold
        self.balance_rel_threshold = balance_rel_threshold
        self.in_flight = InFlight(num_workers)
        self.seen_by = {}

    def route(self, request, prompt):
        worker = argmin(self.in_flight.counts) if self.is_imbalanced() else self.by_prefix(prompt)
        for length in range(1, len(prompt) + 1):
            workers = self.seen_by.setdefault(prompt[:length], [])
            if worker not in workers:
                workers.append(worker)
        self.in_flight.start(request, worker)
        return worker

    def finish(self, request):
        self.in_flight.finish(request)

    def is_imbalanced(self):
        least, most = min(self.in_flight.counts), max(self.in_flight.counts)
        return most - least > self.balance_abs_threshold and most > least * self.balance_rel_threshold

    def by_prefix(self, prompt):
        counts = self.in_flight.counts
        matched = 0
        while matched < len(prompt) and prompt[: matched + 1] in self.seen_by:
            matched += 1
        if not prompt or matched / len(prompt) <= self.cache_threshold:
            return argmin(counts)
        workers = self.seen_by[prompt[:matched]] if matched else range(len(counts))
        return workers[0] if self.owner == "first" else min(workers, key=lambda worker: (counts[worker], worker))
