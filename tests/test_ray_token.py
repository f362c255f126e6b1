"""Which Ray may be started: decided before Ray is imported, so it is tested without one."""

import os
import sys
from types import SimpleNamespace

import pytest

from fastsim import _notice
from fastsim.errors import InputError
from fastsim.sweeps.runner import ray_token


@pytest.fixture
def told(monkeypatch):
    """What is told; no Ray is imported and no variable of it is set."""
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "")  # so that what is set is unset again
        monkeypatch.delenv(name)
    sentences = []
    monkeypatch.setattr(_notice, "tell", sentences.append)
    return sentences


def release(monkeypatch, number):
    monkeypatch.setattr(ray_token, "version", lambda name: number)


def test_a_token_is_made_and_what_is_open_is_said(told, monkeypatch):
    release(monkeypatch, "2.52.1")
    ray_token.lock_up()
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64
    assert told == [ray_token.OPEN]
    assert os.environ["RAY_AUTH_TOKEN"] not in told[0]


def test_a_ray_without_tokens_is_refused(told, monkeypatch):
    for number in ("2.51.2", "2.9.0", "1.13.0"):
        release(monkeypatch, number)
        with pytest.raises(
            InputError, match=rf"^--backend ray: Ray {number} knows no tokens, .* at least 2.52 was exp"
        ):
            ray_token.lock_up()
    assert told == []


def test_a_cluster_or_a_running_ray_is_left_alone(told, monkeypatch):
    release(monkeypatch, "2.40.0")
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))
    ray_token.lock_up()
    monkeypatch.delitem(sys.modules, "ray")
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    ray_token.lock_up()
    assert "RAY_AUTH_MODE" not in os.environ
    assert told == []


@pytest.mark.parametrize(
    ("number", "mode", "good"),
    [("2.60.0", None, True), ("2.55.0", None, False), ("2.60.0", "disabled", False), ("2.52.0", "token", True)],
)
def test_a_ray_that_was_imported_before_must_ask_by_itself(told, monkeypatch, number, mode, good):
    release(monkeypatch, number)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))
    if mode is not None:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    if good:
        ray_token.lock_up()
        assert told == [ray_token.OPEN]
    else:
        with pytest.raises(InputError, match=r"RAY_AUTH_MODE = (none|disabled), but token was expected"):
            ray_token.lock_up()
