"""In-flight requests of each worker, as a router counts them: sent, and not yet answered in full."""


class InFlight:
    """`counts[worker]`, and where each of the unfinished requests is."""

    def __init__(self, num_workers):
        self.counts = [0] * num_workers
        self.worker_of = {}

    def start(self, request, worker):
        self.counts[worker] += 1
        self.worker_of[request] = worker

    def finish(self, request):
        worker = self.worker_of.pop(request)
        self.counts[worker] -= 1
        return worker


def argmin(values):
    """The lowest index of the smallest value."""
    return min(range(len(values)), key=lambda i: (values[i], i))
