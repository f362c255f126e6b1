"""What reaches into Numba: a version that was never tried is tried, and what fails is said."""

from typing import Any

import numba
import pytest

from fastsim._jit import borrowed


def test_the_installed_version_has_been_tried() -> None:
    assert numba.__version__.startswith(borrowed.TRIED)


def test_an_unknown_version_that_works_is_taken() -> None:
    borrowed.check_numba("99.0.0")


@pytest.mark.parametrize("works", [False, True])
def test_an_unknown_version_that_fails_names_the_versions_to_use(works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may not compile, or compute something else."""

    def broken(function: Any) -> Any:
        if not works:
            raise AttributeError("module 'numba' has no attribute 'types'")
        return lambda arrays, records: 0

    monkeypatch.setattr(borrowed, "njit", broken)
    words = "wrong numbers" if works else "AttributeError: module 'numba' has no"
    with pytest.raises(ImportError, match=words) as failure:
        borrowed.check_numba("99.0.0")
    assert "pip install 'numba==0.68.*'" in str(failure.value)
