"""Where trials will be: learning curves that are followed beyond what was reported."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from elastune.curve.base import Extrapolator, Prediction
from elastune.curve.last import LastValue
from elastune.errors import SpecError, did_you_mean

__all__ = ["EXTRAPOLATORS", "Extrapolator", "LastValue", "Prediction", "make_extrapolator"]


def _power() -> Extrapolator:
    from elastune.curve.power import PowerLaw  # whoever ranks by the last value needs no numpy

    return PowerLaw()


def _earlycurve() -> Extrapolator:
    _require_scipy("earlycurve")
    from elastune.curve.earlycurve import EarlyCurve

    return EarlyCurve()


def _slaq() -> Extrapolator:
    _require_scipy("slaq")
    from elastune.curve.slaq import SLAQ

    return SLAQ()


def _require_scipy(name: str) -> None:
    if find_spec("scipy") is None:
        raise SpecError(f"rank={name!r}: needs the package scipy; run: pip install 'elastune[spot]'")


EXTRAPOLATORS: dict[str, Callable[[], Extrapolator]] = {
    "last": LastValue,
    "power": _power,
    "earlycurve": _earlycurve,
    "slaq": _slaq,
}


def make_extrapolator(value: str | Extrapolator) -> Extrapolator:
    """The extrapolator that a name stands for."""
    if isinstance(value, Extrapolator):
        return value
    if isinstance(value, str) and value in EXTRAPOLATORS:
        return EXTRAPOLATORS[value]()
    if isinstance(value, str):
        raise SpecError(f"rank={value!r}: {did_you_mean(value, EXTRAPOLATORS)}")
    raise SpecError(
        f"rank={value!r}: must be a name ({', '.join(EXTRAPOLATORS)}) or an object of an Extrapolator class"
    )
