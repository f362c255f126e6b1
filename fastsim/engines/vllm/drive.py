"""Step the installed vLLM's scheduler through a case on a simulated clock, and write down what it decides.

The step loop of the asynchronous engine is vLLM's own (`EngineCore.step_with_batch_queue`); that of the synchronous
one is a schedule() and an update_from_output(), as in `EngineCore.step`.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

from fastsim.engines.vllm.installed import new_requests, new_scheduler, token_id, vllm_config

SLEEP_US = 1000
"""What the engine core sleeps after a step without tokens."""
_BATCHES_IN_FLIGHT = 2


def decisions(case: dict[str, Any]) -> dict[str, Any]:
    """The case with `steps`, `requests_out` and `totals` as the installed vLLM decides them."""
    run = AsyncRun(case) if case["engine"].endswith("-async") else SyncRun(case)
    stop = run.run()
    return case | {"steps": run.rows, "requests_out": run.requests_out(), "totals": run.totals(stop)}


@dataclass
class _Batch:
    """What one schedule() call chose: the row it fills, tokens by request id, and the ids that sample a token."""

    row: list[Any]
    scheduled: dict[str, int]
    sampling: set[str]
    start_us: int
    end_us: int


class _Run:
    """Clock, arrivals, and the record, around one scheduler."""

    asynchronous = False

    def __init__(self, case: dict[str, Any]) -> None:
        self.config = case["config"]
        self.scheduler = new_scheduler(vllm_config(self.config, asynchronous=self.asynchronous))
        self.schedule = self.scheduler.schedule
        self.update = self.scheduler.update_from_output
        self.requests = new_requests(case)
        arrivals = [request[0] for request in case["requests"]]
        self.coming = deque(sorted((arrival, index) for index, arrival in enumerate(arrivals)))
        self.now_us = 0
        self.gpu_us = 0
        self.rows: list[list[Any]] = []
        self.empty_steps = self.prefill_tokens = self.decode_tokens = 0
        count = len(self.requests)
        self.first_scheduled_us, self.first_token_us, self.finish_us = [-1] * count, [-1] * count, [-1] * count
        self.hits_first, self.hits, self.scheduled_tokens = [-1] * count, [0] * count, [0] * count
        self.preempted: list[int] = []
        self._note_preemptions()

    def _note_preemptions(self) -> None:
        """SchedulerOutput holds the preempted as a set; their order is that of the calls."""
        preempt = self.scheduler._preempt_request

        def noted(request: Any, *args: Any, **kwargs: Any) -> Any:
            self.preempted.append(int(request.request_id))
            return preempt(request, *args, **kwargs)

        self.scheduler._preempt_request = noted

    def admit_arrivals(self) -> None:
        """Hand over everything that has arrived."""
        while self.coming and self.coming[0][0] <= self.now_us:
            self.scheduler.add_request(self.requests[self.coming.popleft()[1]])

    def limit(self) -> str | None:
        """Why no further schedule() call may be made now, if so."""
        if self.config["horizon_us"] is not None and self.now_us >= self.config["horizon_us"]:
            return "horizon"
        if self.config["max_steps"] is not None and len(self.rows) >= self.config["max_steps"]:
            return "max_steps"
        return None

    def scheduled_batch(self, output: Any, in_flight: dict[str, int]) -> _Batch:
        """Write down a schedule() call. `in_flight`: tokens awaited by each of the requests that ran before it."""
        prefill = decode = 0
        sampling = set()
        for name, count in output.num_scheduled_tokens.items():
            request, index = self.requests[int(name)], int(name)
            start = request.num_computed_tokens - count
            complete = request.num_computed_tokens == request.num_tokens + in_flight.get(name, 0)
            if complete:
                sampling.add(name)
            if count == 1 and complete and start >= request.num_prompt_tokens:
                decode += 1
            else:
                prefill += count
            self.scheduled_tokens[index] += count
            if name not in in_flight:  # admitted in this step: what is computed already was found in the cache
                self.hits[index] += start
                if self.first_scheduled_us[index] < 0:
                    self.first_scheduled_us[index], self.hits_first[index] = self.now_us, start
        self.prefill_tokens += prefill
        self.decode_tokens += decode
        self.empty_steps += not output.num_scheduled_tokens
        start_us, end_us = self.execution(prefill, decode)
        flat = [value for name, count in output.num_scheduled_tokens.items() for value in (int(name), count)]
        row = [self.now_us, flat, self.preempted, [], self.free_blocks(), 0, 0, 0]
        self.preempted = []
        self.rows.append(row)
        return _Batch(row, output.num_scheduled_tokens, sampling, start_us, end_us)

    def execution(self, prefill: int, decode: int) -> tuple[int, int]:
        """When a batch starts and ends."""
        c = self.config
        step_us = int(c["beta0"] + c["beta1"] * prefill + c["beta2"] * decode)
        if self.asynchronous:
            start_us = max(self.now_us, self.gpu_us)
            if not prefill + decode:
                return start_us, start_us
            self.gpu_us = start_us + step_us
            return start_us, self.gpu_us
        return self.now_us, self.now_us + step_us

    def model_output(self, batch: _Batch) -> Any:
        """One token for every request whose tokens are all computed."""
        from vllm.v1.outputs import ModelRunnerOutput

        names = list(batch.scheduled)
        tokens = [
            [token_id(int(name), self.requests[int(name)].num_tokens)] if name in batch.sampling else []
            for name in names
        ]
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=tokens,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )

    def note_update(self, batch: _Batch) -> None:
        """Write down what update_from_output() did with a batch."""
        for name in batch.scheduled:
            request, index = self.requests[int(name)], int(name)
            if self.first_token_us[index] < 0 < request.num_output_tokens:
                self.first_token_us[index] = batch.end_us
            if request.is_finished():
                self.finish_us[index] = batch.end_us
                batch.row[3].append(index)
        batch.row[5:8] = [self.free_blocks(), *self.scheduler.get_request_counts()]
        if self.asynchronous:
            batch.row += [batch.start_us, batch.end_us]

    def free_blocks(self) -> int:
        """Blocks in the free list."""
        return int(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())

    def awaited(self) -> dict[str, int]:
        """Tokens in flight of every running request."""
        return {request.request_id: request.num_output_placeholders for request in self.scheduler.running}

    def requests_out(self) -> list[list[int]]:
        """The rows of the requests."""
        return [
            [
                self.first_scheduled_us[index],
                self.first_token_us[index],
                self.finish_us[index],
                request.num_preemptions,
                request.num_output_tokens,
                self.hits_first[index],
                self.hits[index],
                self.scheduled_tokens[index],
            ]
            for index, request in enumerate(self.requests)
        ]

    def totals(self, stop: str) -> dict[str, Any]:
        """The sums."""
        return {
            "steps": len(self.rows),
            "empty_steps": self.empty_steps,
            "prefill_tokens": self.prefill_tokens,
            "decode_tokens": self.decode_tokens,
            "preemptions": sum(len(row[2]) for row in self.rows),
            "completed": sum(finish_us >= 0 for finish_us in self.finish_us),
            "end_us": self.now_us,
            "stop": stop,
        }


class SyncRun(_Run):
    """One batch at a time."""

    def run(self) -> str:
        """Run to the end, and say why it is one."""
        while True:
            self.admit_arrivals()
            if not self.scheduler.has_unfinished_requests():
                if not self.coming:
                    return "drained"
                self.now_us = self.coming[0][0]
                if self.limit() == "horizon":
                    return "horizon"
                continue
            if stop := self.limit():
                return stop
            running = self.awaited()
            batch = self.scheduled_batch(output := self.schedule(), running)
            self.update(output, self.model_output(batch))
            self.note_update(batch)
            self.now_us = batch.end_us


class AsyncRun(_Run):
    """vLLM's loop with two batches in flight. This object stands in for its executor and stamps its calls."""

    asynchronous = True

    def __init__(self, case: dict[str, Any]) -> None:
        super().__init__(case)
        from vllm.v1.engine.core import EngineCore

        self.scheduler.schedule = self.noted_schedule
        self.scheduler.update_from_output = self.noted_update
        self.batches: deque[_Batch] = deque()
        core = object.__new__(EngineCore)  # without its constructor, which loads a model
        core.scheduler, core.model_executor = self.scheduler, self
        core.vllm_config = self.scheduler.vllm_config
        core.batch_queue = deque(maxlen=_BATCHES_IN_FLIGHT)
        core.batch_queue_size = _BATCHES_IN_FLIGHT
        core.is_mm_encoder_only = core.is_pooling_model = core.log_stats = False
        core._weight_version = None
        core._process_aborts_queue = lambda: None
        self.core = core

    def noted_schedule(self, *args: Any) -> Any:
        """schedule(), written down."""
        running = self.awaited()
        output = self.schedule(*args)
        self.batches.append(self.scheduled_batch(output, running))
        return output

    def noted_update(self, output: Any, model_output: Any) -> Any:
        """update_from_output() of the oldest batch, written down."""
        result = self.update(output, model_output)
        self.note_update(self.batches.popleft())
        return result

    def execute_model(self, _output: Any, *, non_block: bool) -> "AsyncRun":
        """Asked for by the engine core; the result is waited for in `result`."""
        assert non_block
        return self

    def sample_tokens(self, _grammar: Any, *, non_block: bool) -> "AsyncRun":
        """Asked for by the engine core; the result is waited for in `result`."""
        assert non_block
        return self

    def result(self) -> Any:
        """Wait for the oldest batch."""
        self.now_us = max(self.now_us, self.batches[0].end_us)
        return self.model_output(self.batches[0])

    def run(self) -> str:
        """Run to the end, and say why it is one."""
        while True:
            if not self.scheduler.has_requests() and not self.batches:
                if not self.coming:
                    return "drained"
                self.now_us = max(self.now_us, self.coming[0][0])
            self.admit_arrivals()
            if self.scheduler.has_requests() and (stop := self.limit()):
                self.finish_submitted()
                return stop
            _, executed = self.core.step_with_batch_queue()
            if not executed and self.scheduler.has_requests():
                self.now_us += SLEEP_US

    def finish_submitted(self) -> None:
        """What was submitted before the stop is still completed."""
        while self.core.batch_queue:
            _, output, _ = self.core.batch_queue.pop()
            self.noted_update(output, self.result())
