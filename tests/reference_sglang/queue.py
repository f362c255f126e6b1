"""The order of the waiting queue."""

from typing import Any

from tests.reference_sglang.memory import Memory
from tests.reference_sglang.requests import Request

LPM_LIMIT = 128
REFRESH_EVERY = 32
REFRESH_REQUESTS = 128


class WaitingQueue:
    def __init__(self, config: dict[str, Any], memory: Memory) -> None:
        self.config = config
        self.memory = memory
        self.requests: list[Request] = []
        self.stamps = 0
        self.passes = 0

    def append(self, request: Request) -> None:
        self.stamps += 1
        request.stamp = self.stamps
        self.requests.append(request)

    def urgency(self, request: Request) -> int:
        return -request.priority if self.config["schedule_low_priority_values_first"] else request.priority

    def sort(self) -> None:
        policy = self.config["schedule_policy"]
        priority = self.config["enable_priority_scheduling"]
        radix = self.memory.radix
        if policy == "lpm" and radix is not None and len(self.requests) <= LPM_LIMIT:
            self.sort_by_longest_prefix()
            return
        if policy == "lof":
            self.requests.sort(key=lambda r: (-self.urgency(r) if priority else 0, -r.limit))
        elif priority:
            self.requests.sort(key=lambda r: (-self.urgency(r), r.stamp))
        if radix is not None and self.requests:
            if self.passes % REFRESH_EVERY == 0:
                for request in reversed(self.requests[:REFRESH_REQUESTS]):
                    self.memory.match(request, request.tokens)
            self.passes += 1

    def sort_by_longest_prefix(self) -> None:
        kept: list[list[Any]] = []
        keys = {}
        for request in self.requests:
            matched, _ = self.memory.match(request, request.tokens)
            request.prefix = matched
            keys[request.index] = (0, -min(matched, request.tokens - 1))
            if matched > self.config["in_batch_check_threshold"]:
                continue
            content = request.content(request.tokens)
            if (
                max((common_prefix(content, other) for other in kept), default=0)
                >= (self.config["in_batch_deprioritize_threshold"])
            ):
                keys[request.index] = (1, 0)
            else:
                kept.append(content)
        self.requests.sort(key=lambda r: keys[r.index])


def common_prefix(a: list[Any], b: list[Any]) -> int:
    size = 0
    while size < min(len(a), len(b)) and a[size] == b[size]:
        size += 1
    return size
