"""Shapes of traffic: rates that change over the day or surge, and conversations whose prompts grow."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.config.workload_parts import ArrivalConfig, SessionConfig
from fastsim.workload.draws import Draws, Floats
from fastsim.workload.prefix_tree import PrefixTree
from fastsim.workload.workload import INT32_MAX, Int32Array, Int64Array

BISECTIONS = 64


def is_modulated(config: ArrivalConfig) -> bool:
    """Whether the rate changes over time."""
    return config.diurnal_amplitude > 0 or config.surge_factor > 1 or config.ramp_up_s > 0


def modulated_us(times_us: Floats, config: ArrivalConfig) -> Floats:
    """Arrivals of a constant rate moved to where a changing rate has offered as many requests.

    At time t the rate is `rate_per_s` times 1 + diurnal_amplitude * sin(2 pi t / diurnal_period_s), plus
    surge_factor - 1 during a surge; until `ramp_up_s` it grows in proportion to t. The gaps' burstiness relative to the
    rate stays.
    """
    low, high = np.zeros(len(times_us)), times_us / 1e6 / max(1 - config.diurnal_amplitude, 0.01)
    high = high + config.diurnal_period_s + config.ramp_up_s  # an amplitude of 1 and a ramp have moments of rate 0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        early = _offered_s(middle, config) < times_us / 1e6
        low, high = np.where(early, middle, low), np.where(early, high, middle)
    return high * 1e6


def _offered_s(at_s: Floats, config: ArrivalConfig) -> Floats:
    """Integral of the relative rate from 0: seconds that the constant rate would need to offer as many requests."""
    turn = 2 * np.pi / config.diurnal_period_s
    if config.ramp_up_s > 0:  # neither swings nor surges go with it
        ramp = config.ramp_up_s
        return np.where(at_s < ramp, at_s * at_s / (2 * ramp), at_s - ramp / 2)
    offered = at_s + config.diurnal_amplitude / turn * (1 - np.cos(turn * at_s))
    since = np.maximum(at_s - config.surge_start_s, 0.0)
    if config.surge_every_s is None:
        surging = np.minimum(since, config.surge_duration_s)
    else:
        whole, rest = np.divmod(since, config.surge_every_s)
        length = min(config.surge_duration_s, config.surge_every_s)
        surging = whole * length + np.minimum(rest, length)
    return offered + (config.surge_factor - 1) * surging


class Conversations(NamedTuple):
    """Requests of conversations in order of arrival, each array of shape (count,), and the tree of shared prompts.

    `order` is where each request stood before they were sorted.
    """

    order: Int64Array
    arrival_us: Floats
    prompt_tokens: Int32Array
    prefix_group: Int32Array
    prefix_tokens: Int32Array
    groups: PrefixTree


def conversations(
    start_us: Floats,
    message_tokens: npt.NDArray[np.integer[Any]],
    output_tokens: Int32Array,
    config: SessionConfig,
    draws: Draws,
) -> Conversations:
    """Requests as turns of conversations: each prompt is all that was said before and a new message.

    Of turn k + 1's prompt the whole prompt of turn k is shared content. The answer in between is not: what a request
    generates has no content that another could share here. Turns follow one another by gaps that are drawn, whether
    or not the answer has been completed. A prompt that would exceed `max_prompt_tokens` begins a new conversation.

    Parameters
    ----------
    start_us
        Arrivals of the process, float64, shape (count,); the first ones, stretched by the number of turns, start the
        conversations, so that the rate of requests stays.
    message_tokens, output_tokens
        New tokens of each turn, and its answer.
    """
    count = draws.count
    sessions = -(-count // config.turns)
    rows = -(-count // sessions)
    gaps_us = config.gap_s * 1e6 * draws.exponential("session_gap")
    arrival_us = np.empty(count)
    prompt = np.empty(count, np.int64)
    shared = np.zeros(count, np.int64)
    group = np.full(count, -1, np.int64)
    parents: list[npt.NDArray[np.int64]] = []
    starts: list[npt.NDArray[np.int64]] = []
    num_groups = 0
    most = config.max_prompt_tokens or INT32_MAX // 4
    for turn in range(rows):
        now = np.arange(turn * sessions, min((turn + 1) * sessions, count))
        before = now - sessions
        if turn == 0:
            arrival_us[now] = start_us[: len(now)] * config.turns
            prompt[now] = np.minimum(message_tokens[now], most)
            continue
        arrival_us[now] = arrival_us[before] + gaps_us[now]
        grown = prompt[before] + output_tokens[before] + message_tokens[now]
        goes_on = grown <= most
        prompt[now] = np.where(goes_on, grown, np.minimum(message_tokens[now], most))
        # The turn before now shares its whole prompt: a group that extends the one it shares itself
        parent = before[goes_on]
        new = num_groups + np.arange(len(parent))
        parents.append(group[parent])
        starts.append(shared[parent])
        group[parent] = new
        group[now[goes_on]] = new
        shared[parent] = prompt[parent]
        shared[now[goes_on]] = prompt[parent]
        num_groups += len(parent)
    order = np.argsort(arrival_us, kind="stable")
    tree = PrefixTree(
        np.concatenate(parents).astype(np.int32) if parents else np.zeros(0, np.int32),
        np.concatenate(starts).astype(np.int32) if starts else np.zeros(0, np.int32),
    )
    return Conversations(
        order,
        arrival_us[order],
        prompt[order].astype(np.int32),
        group[order].astype(np.int32),
        shared[order].astype(np.int32),
        tree,
    )
