"""What a run is made of: the requests and the configuration."""

from dataclasses import dataclass, field

SLO_PRIORITY = {"critical": 0, "standard": 1, "": 1, "batch": 5, "sheddable": 6, "background": 7}


@dataclass
class Config:
    """BLIS's flags. Times in microseconds; 0 switches off a threshold, a model length or the CPU tier."""

    total_kv_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    long_prefill_token_threshold: int = 0
    preemption_policy: str = "fcfs"
    scheduler: str = "fcfs"
    max_model_len: int = 0
    cpu_kv_blocks: int = 0
    kv_transfer_bandwidth: float = 100.0  # tokens per microsecond
    kv_transfer_base_latency_us: int = 0
    alpha: tuple = (0.0, 0.0, 0.0)
    beta: tuple = (0.0, 0.0, 0.0)
    horizon_us: int | None = None
    max_steps: int | None = None
    rollback_leak: bool = False


@dataclass(eq=False)
class Request:
    index: int
    arrival_us: int
    prompt_tokens: int
    output_tokens: int
    slo_class: str = ""
    prefix_group: str = ""
    prefix_tokens: int = 0
    deadline_us: int = 0

    status: str = "pending"  # waiting, running, finished, timed_out, unservable
    progress: int = 0  # tokens computed
    computed: int = 0  # tokens computed once this step is over
    num_new_tokens: int = 0
    ttft_us: int | None = None  # None until the prefill of this life ended
    itls_us: list = field(default_factory=list)
    # What is reported
    reported_ttft_us: int = 0
    reported_e2e_us: int = 0
    scheduling_delay_us: int | None = None
    token_times_us: list = field(default_factory=list)  # of this life, on the simulation clock
    first_life_token_us: int = -1
    first_scheduled_us: int = -1
    finish_us: int = -1
    num_preemptions: int = 0
    prefix_hit_tokens_first: int = -1
    prefix_hit_tokens: int = 0
    scheduled_tokens: int = 0
    waiting_since_us: int = 0
    admission_wait_us: int = 0
    recomputed: int = 0  # tokens of its present life that an earlier one had computed
    admission_wait_end_us: int = 0
    highest_progress: int = 0

    @property
    def id(self):
        return f"request_{self.index}"

    @property
    def priority(self):
        return SLO_PRIORITY.get(self.slo_class, 1)

    @property
    def running(self):
        return self.status == "running"

    @property
    def generated(self):
        """Output tokens of the present life."""
        if self.ttft_us is None:
            return 0
        return min(self.progress - self.prompt_tokens + 1, self.output_tokens)


def from_case(case):
    """The configuration and the requests of a recorded case."""
    config = Config(**case["config"], alpha=tuple(case["latency"]["alpha"]), beta=tuple(case["latency"]["beta"]))
    return config, [Request(i, *row) for i, row in enumerate(case["requests"])]
