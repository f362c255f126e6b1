"""What workloads are described by: arrivals, lengths, prefixes, priorities, thinking, conversations."""

from typing import Annotated, Literal

from pydantic import Field

from fastsim.model import Duration, FileName, Model, Natural, Pause, Positive, Share, a_list, type_integer

ArrivalKind = Literal["poisson", "gamma", "constant", "blis_rate", "all_at_once", "spikes", "closed_loop", "trace"]
LengthDist = Literal["constant", "uniform", "normal", "lognormal", "empirical", "trace"]
TraceFormat = Literal[
    "plain",
    "azure",
    "blis",
    "burstgpt",
    "vidur",
    "mooncake",
    "llmservingsim",
    "vllm-run",
    "vllm-bench",
    "guidellm",
    "inference-perf",
    "named",
    "servegen",
]
MaxTokensDist = Literal["constant", "uniform", "normal", "lognormal", "empirical", "factor"]
TokenList = Annotated[tuple[Positive, ...], a_list, Field(min_length=1, max_length=1_000_000)]
Weights = Annotated[tuple[Pause, ...], a_list, Field(min_length=1, max_length=1_000_000)]
Priority = Annotated[int, type_integer, Field(ge=-(2**31), le=2**31 - 1)]
Priorities = Annotated[tuple[Priority, ...], a_list, Field(min_length=1, max_length=1000)]
Tokens = Annotated[float, Field(ge=1, le=2**31 - 1, allow_inf_nan=False)]


class ArrivalShape(Model):
    """How requests are spread over time, whatever their rate."""

    kind: ArrivalKind | None = None
    """None: closed_loop if `workload.concurrency` is set, else trace if `workload.trace` is, else poisson."""
    cv: Annotated[float, Field(ge=0.01, le=100, allow_inf_nan=False)] = 1.0
    """Coefficient of variation of gamma gaps: 1 is poisson, above 1 is burstier."""
    spike_requests: Positive = 50
    """Requests that arrive together in each spike."""
    spike_interval_s: Duration = 30.0
    """Seconds from one spike to the next; the first is at 0."""
    diurnal_amplitude: Share = 0.0
    """The rate swings by this share of itself as a sine, rising at first; 0: it does not."""
    diurnal_period_s: Duration = 86_400.0
    """Length of a swing."""
    surge_factor: Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)] = 1.0
    """How many times the rate a surge has; 1: there is none."""
    surge_start_s: Pause = 60.0
    """When the first surge begins."""
    surge_duration_s: Duration = 30.0
    """How long a surge lasts."""
    surge_every_s: Duration | None = None
    """Seconds from the start of a surge to that of the next; none: there is one."""
    ramp_up_s: Pause = 0.0
    """So long the rate grows from 0 to its full height; in a closed loop the clients start one by one over it."""


class ArrivalConfig(ArrivalShape):
    """When requests arrive."""

    rate_per_s: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] = 10.0
    """Requests per second of poisson, gamma, constant and blis_rate (constant gaps of whole us, as BLIS cuts them)."""


class LengthParameters(Model):
    """The parameters of a distribution of token counts: rounded to integers, clipped to [min, max], at least 1."""

    mean: Tokens | None = None
    """Mean before clipping (constant, normal, lognormal)."""
    stdev: Annotated[float, Field(ge=0, le=2**31 - 1, allow_inf_nan=False)] | None = None
    """Standard deviation before clipping (normal, lognormal)."""
    min: Positive | None = None
    """Least; for uniform the lower end."""
    max: Positive | None = None
    """Most; for uniform the upper end, included."""
    values: TokenList | None = None
    """Values of an empirical distribution."""
    weights: Weights | None = None
    """Weights of the values; equal when none."""


class LengthConfig(LengthParameters):
    """The prompt or output lengths."""

    dist: LengthDist | None = None
    """None: trace if `workload.trace` is set, else the default workload's clipped normal."""


class MaxTokensConfig(LengthParameters):
    """The output limit that requests declare; none is declared when `dist` is none. It caps the output."""

    dist: MaxTokensDist | None = None
    """As for lengths; factor: the true output times `factor`, rounded up."""
    factor: Annotated[float, Field(ge=1, le=1e6, allow_inf_nan=False)] = 1.0
    """For dist = factor: how much larger than the output the declared limit is."""


class PrefixConfig(Model):
    """Groups of requests that share the first tokens of their prompt."""

    groups: Annotated[int, type_integer, Field(ge=0, le=10**7)] | None = None
    """Number of groups. None: as in the trace, else no groups; 0: no groups."""
    tokens: Natural = 0
    """Tokens that a group shares."""
    share: Share = 1.0
    """Share of requests that belong to a group."""
    zipf: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.0
    """Popularity of group k is proportional to (k+1)**-zipf; 0: all alike."""
    adds_to_prompt: bool = False
    """Whether the shared tokens come on top of the drawn prompt length."""


class PriorityConfig(Model):
    """Priority classes; a smaller value is more urgent."""

    values: Priorities | None = None
    """The classes. None: as in the trace, else all 0."""
    shares: Weights | None = None
    """Relative sizes of the classes, turned to exact counts; equal when none."""


class ThinkConfig(Model):
    """The pause of a closed-loop client before its next request."""

    dist: Literal["constant", "exponential"] = "exponential"
    """Distribution of the pause."""
    mean_s: Pause = 0.0
    """Mean of the pause in seconds."""


class SessionConfig(Model):
    """Conversations: requests whose prompt repeats all that was said before."""

    turns: Positive = 1
    """Requests of a conversation; 1: there are none. `workload.prompt` is then the new message of each turn."""
    gap_s: Pause = 30.0
    """Mean of the exponential time from one turn's arrival to the next's."""
    max_prompt_tokens: Positive | None = None
    """A prompt that would be longer begins a new conversation; none: no limit."""


class TrafficConfig(Model):
    """What the traffic as a whole and each class of it can say."""

    prompt: LengthConfig = LengthConfig()
    output: LengthConfig = LengthConfig()
    max_tokens: MaxTokensConfig = MaxTokensConfig()
    prefix: PrefixConfig = PrefixConfig()
    priority: PriorityConfig = PriorityConfig()
    sessions: SessionConfig = SessionConfig()
    trace: FileName | None = None
    """File of recorded requests; a relative path is relative to the file that names it."""
    format: TraceFormat | None = None
    """Format of the trace; none: recognised by its beginning."""
    window_start_s: Pause = 0.0
    """Only rows of the trace from this time on, which becomes the start."""
    window_end_s: Duration | None = None
    """Only rows of the trace before this time."""
    sample_share: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 1.0
    """Share of the trace's rows, drawn at random; a larger share keeps all of a smaller one. Thins bursts out."""
    rate_scale: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] = 1.0
    """Divides all gaps between arrivals: 2 is twice the rate. A class's comes on top of the workload's."""
