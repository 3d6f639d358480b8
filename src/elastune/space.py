"""The search-space dialect: what a configuration may be.

A space is a dict of name -> domain, constant or nested dict:

    {"lr": loguniform(1e-4, 1e-1), "layers": choice([2, 3, 4]), "epochs": 50}

The options of a `choice` may hold domains of their own, which are then used only when that option is chosen:

    {"opt": choice([{"kind": "sgd", "momentum": uniform(0, 0.9)}, {"kind": "adam"}])}

Wherever a domain may stand, the form of YAML may stand too: a dict with the function's name as its only key, such as
`{"loguniform": [1e-4, 0.1]}`. `Space.describe()` writes that form, and `Space` reads it.

Every domain has a name: the keys that lead to it, joined by dots. Inside an option of a choice the number of the option
is one of them, so that the same key may mean different things in two options: above, `opt` and `opt.0.momentum`.
"""

from __future__ import annotations

import difflib
import inspect
import math
import random
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

from elastune.errors import SpecError, did_you_mean
from elastune.messages import Config

LARGEST_INT = 2**53
"""Much is computed with floats, which hold whole numbers exactly up to here."""


@dataclass(frozen=True, slots=True)
class Float:
    """A number between low and high: even or log-even, or with `q` only the steps low, low + q, ... up to high."""

    low: float
    high: float
    log: bool = False
    q: float | None = None

    def __post_init__(self) -> None:
        if not all(_is_finite(value) for value in self.args) or not math.isfinite(float(self.high) - float(self.low)):
            raise SpecError(f"{_call(self)}: must be finite numbers")
        if self.low >= self.high:
            raise SpecError(f"{_call(self)}: low must be below high")
        if self.log and self.low <= 0:
            raise SpecError(f"{_call(self)}: low must be above 0, because the scale is logarithmic")
        if self.q is not None and not 0 < self.q <= self.high - self.low:
            raise SpecError(f"{_call(self)}: q must be above 0 and at most high - low")
        if self.q is not None and (self.high - self.low) / self.q > LARGEST_INT:
            raise SpecError(f"{_call(self)}: must have at most 2**53 steps: give a larger q")
        for field in ("low", "high") if self.q is None else ("low", "high", "q"):
            object.__setattr__(self, field, float(getattr(self, field)))

    @property
    def function(self) -> str:
        return "quniform" if self.q is not None else "loguniform" if self.log else "uniform"

    @property
    def args(self) -> list[Any]:
        return [self.low, self.high] if self.q is None else [self.low, self.high, self.q]

    def step(self, index: int) -> float:
        """The `index`-th step above low. In decimals: people write q=0.1 and expect 0.3, not 0.30000000000000004."""
        return float(Decimal(str(self.low)) + index * Decimal(str(self.q)))

    @property
    def steps(self) -> int:
        """How many steps there are above low."""
        return int((Decimal(str(self.high)) - Decimal(str(self.low))) // Decimal(str(self.q)))

    def sample(self, rng: random.Random) -> float:
        if self.q is not None:
            return self.step(rng.randrange(self.steps + 1))
        if self.log:
            low = math.log(self.low)
            value = math.exp(low + (math.log(self.high) - low) * rng.random())
        else:
            value = self.low + (self.high - self.low) * rng.random()
        return min(max(value, self.low), self.high)  # rounding may step over an end

    def __contains__(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.low <= value <= self.high:
            return False
        return self.q is None or abs(self.step(round((value - self.low) / self.q)) - value) <= self.q / 1e6


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number from low up to, and not including, high."""

    low: int
    high: int
    log: bool = False

    def __post_init__(self) -> None:
        if not all(_is_whole(value) for value in self.args):
            raise SpecError(f"{_call(self)}: must be whole numbers, at most 2**53 in size")
        if self.low >= self.high:
            raise SpecError(f"{_call(self)}: low must be below high, which is itself excluded")
        if self.log and self.low < 1:
            raise SpecError(f"{_call(self)}: low must be at least 1, because the scale is logarithmic")
        for field in ("low", "high"):
            object.__setattr__(self, field, int(getattr(self, field)))

    @property
    def function(self) -> str:
        return "lograndint" if self.log else "randint"

    @property
    def args(self) -> list[Any]:
        return [self.low, self.high]

    def sample(self, rng: random.Random) -> int:
        if not self.log:
            return rng.randrange(self.low, self.high)
        # Every number gets the length of the logarithmic scale that rounds to it.
        low, high = math.log(self.low - 0.5), math.log(self.high - 0.5)
        return min(max(round(math.exp(low + (high - low) * rng.random())), self.low), self.high - 1)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and self.low <= value < self.high


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the options, which may hold domains of their own. Chosen by its index."""

    options: tuple[Any, ...]

    def __post_init__(self) -> None:
        # A set would do for a reader, but it has no order, and so the same seed would not give the same options.
        if isinstance(self.options, str) or not isinstance(self.options, Sequence):
            raise SpecError(f"{self.function}({reprlib.repr(self.options)}): must be a list of options")
        options = tuple(_parse(option, f"{self.function} option {i}") for i, option in enumerate(self.options))
        if not options:
            raise SpecError(f"{self.function}([]): needs at least one option")
        if not isinstance(self, Grid) and any(map(_has_grid, options)):
            raise SpecError(
                "choice: an option holds a grid_search, of which nobody knows how often it would be chosen; "
                "use grid_search outside too, or choice inside"
            )
        object.__setattr__(self, "options", options)

    @property
    def function(self) -> str:
        return "choice"

    def sample(self, rng: random.Random) -> int:
        return rng.randrange(len(self.options))


@dataclass(frozen=True, slots=True)
class Grid(Choice):
    """Options that a grid search tries one after the other."""

    @property
    def function(self) -> str:
        return "grid_search"


Domain = Float | Integer | Choice


def uniform(low: float, high: float) -> Float:
    """A number between low and high."""
    return Float(low, high)


def loguniform(low: float, high: float) -> Float:
    """A number between low and high whose logarithm is uniform; for what may be large or small, as a learning rate."""
    return Float(low, high, log=True)


def quniform(low: float, high: float, q: float) -> Float:
    """One of the numbers low, low + q, low + 2q, ... up to high."""
    return Float(low, high, q=q)


def randint(low: int, high: int) -> Integer:
    """A whole number from low up to, and not including, high, as in Ray Tune: `randint(0, 3)` is 0, 1 or 2."""
    return Integer(low, high)


def lograndint(low: int, high: int) -> Integer:
    """A whole number from low up to, and not including, high, even on a logarithmic scale."""
    return Integer(low, high, log=True)


def choice(options: Any) -> Choice:
    """One of the options: plain values, domains, or dicts and lists that hold domains."""
    return Choice(options)


def grid_search(values: Any) -> Grid:
    """Every value in turn, each together with every value of the other grid_search domains; for the grid searcher."""
    return Grid(values)


_FUNCTIONS: dict[str, Callable[..., Domain]] = {
    make.__name__: make for make in (uniform, loguniform, quniform, randint, lograndint, choice, grid_search)
}
_ELSEWHERE_BY_ADVICE = {
    "take randint or lograndint, whose end is excluded": "int integer suggest_int int_uniform uniformint randrange",
    "take randint, whose end is excluded, or quniform for steps": "qrandint qlograndint",
    "take uniform or loguniform": "float double real suggest_float suggest_uniform",
    "take loguniform": "log_uniform log_uniform_values suggest_loguniform",
    "take quniform": "discrete_uniform suggest_discrete_uniform q_uniform",
    "take loguniform, or quniform for steps": "qloguniform",
    "take choice": "categorical suggest_categorical ordinal values pchoice",
    "there is no normal distribution: take uniform": "normal randn qnormal qrandn",
    "there is no normal distribution: take loguniform": "lognormal qlognormal log_normal",
    "nothing is computed in a space: do that in your training function": "sample_from",
}
ELSEWHERE = {name: advice for advice, names in _ELSEWHERE_BY_ADVICE.items() for name in names.split()}
"""What other libraries call their domains, and what to write here."""


@dataclass(frozen=True, slots=True)
class Space:
    """A checked definition of what configurations may be. See the top of this file."""

    definition: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.definition, Mapping):
            raise SpecError(f"space={reprlib.repr(self.definition)}: must be a dict of parameter name to domain")
        if not self.definition:
            raise SpecError('space is empty: give at least one parameter, such as {"lr": loguniform(1e-4, 1e-1)}')
        object.__setattr__(self, "definition", _parse_dict(self.definition, "space"))

    def resolve(self, choose: Callable[[str, Domain], Any]) -> Config:
        """A configuration: `choose(name, domain)` answers for every domain in use, in the order of the definition.

        For a choice the answer is the index of the option; the domains inside that option are asked for next.
        """
        config: Config = _resolve(self.definition, "", choose)
        return config

    def answers(self, config: Config) -> dict[str, Any] | None:
        """The answers from which `resolve` makes this configuration; None if the space does not hold it."""
        return _answers(self.definition, config, "")

    def sample(self, rng: random.Random) -> Config:
        """A random configuration; a grid_search counts as a choice."""
        return self.resolve(lambda _, domain: domain.sample(rng))

    def domains(self) -> dict[str, Domain]:
        """Every domain by its name, in the order of `resolve`; those inside the options of a choice come after it."""
        return dict(_domains(self.definition, ""))

    @property
    def is_constant(self) -> bool:
        """Whether there is one configuration only."""
        return _is_constant(self.definition)

    @property
    def has_grid(self) -> bool:
        return _has_grid(self.definition)

    @property
    def grid_size(self) -> int:
        """How many grid points there are; 1 without a grid_search."""
        return _grid_size(self.definition)

    def grid_point(self, index: int) -> dict[str, int]:
        """The `index`-th grid point: for every grid_search in use, by name, the index of its value."""
        return _grid_point(self.definition, "", index)

    def describe(self) -> dict[str, Any]:
        """The definition in the form of YAML and JSON; `Space` of it is this space again."""
        described: dict[str, Any] = _describe(self.definition)
        return described


def _parse(node: Any, where: str) -> Any:
    """The node with plain values and domains only, copied, so that nobody can change it from outside."""
    if isinstance(node, Domain):
        return node
    if isinstance(node, Mapping):
        if (domain := _parse_domain(node, where)) is not None:
            return domain
        parsed = _parse_dict(node, where)
        _check_no_list_alone(parsed, where)
        return parsed
    if isinstance(node, list | tuple):
        return [_parse(item, f"{where}.{i}") for i, item in enumerate(node)]
    if node is None or isinstance(node, bool):
        return node
    if isinstance(node, str):
        return str.__str__(node)
    if isinstance(node, Integral) and -(2**63) <= int(node) < 2**64:
        return int(node)
    if isinstance(node, Real) and not isinstance(node, Integral) and _is_finite(node):
        return float(node)
    hint = "a function is not sampled: compute its value in your training function" if callable(node) else ""
    raise SpecError(
        f"{where}={reprlib.repr(node)}: a configuration holds None, bool, int of 64 bits, finite float, str, list "
        f"and dict, and a space also {', '.join(_FUNCTIONS)}" + (f"; {hint}" if hint else "")
    )


def _parse_dict(node: Mapping[Any, Any], where: str) -> dict[str, Any]:
    for key in node:
        if not isinstance(key, str) or not key or "." in key:
            raise SpecError(
                f"{where}: the name {key!r} must be a non-empty text without '.', which joins the names of nested ones"
            )
    return {str(key): _parse(value, f"{where}.{key}") for key, value in node.items()}


def _parse_domain(node: Mapping[Any, Any], where: str) -> Domain | None:
    """The domain that `{"uniform": [0, 1]}` stands for; None if the dict is something else."""
    if len(node) != 1:
        # {"uniform": [1, 9], "log": True} would pass as a nested space of constants.
        if (name := next((key for key in node if key in _FUNCTIONS), None)) is not None:
            raise SpecError(
                f"{where}={reprlib.repr(dict(node))}: a domain is a mapping with one name, such as "
                f"{{{name}: [...]}}, and a hyperparameter of a nested space must not be named {name!r}; "
                f"domains: {', '.join(_FUNCTIONS)}"
            )
        return None
    ((key, args),) = node.items()
    if key not in _FUNCTIONS:
        if isinstance(key, str) and isinstance(args, list | tuple):
            _check_name(key, where)
        return None
    function = _FUNCTIONS[key]
    if key in ("choice", "grid_search"):
        args = [args]
    else:
        names = list(inspect.signature(function).parameters)
        if not isinstance(args, list | tuple) or len(args) != len(names):
            raise SpecError(f"{where}: {key}: {reprlib.repr(args)}: must be the list [{', '.join(names)}]")
        args = [_number_from_yaml(value) for value in args]
    try:
        return function(*args)
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from None


def _check_name(key: str, where: str) -> None:
    """{"logunifrom": [1e-4, 0.1]} would pass as a constant, and the mistake show up in the training function."""
    if key in ELSEWHERE:
        raise SpecError(f"{where}: unknown domain {key!r}: {ELSEWHERE[key]}; allowed: {', '.join(_FUNCTIONS)}")
    if difflib.get_close_matches(key, _FUNCTIONS, cutoff=0.75):
        raise SpecError(f"{where}: unknown domain {key!r}: {did_you_mean(key, _FUNCTIONS)}")


def _check_no_list_alone(parsed: Mapping[str, Any], where: str) -> None:
    """So would {"one_of": ["a", "b"]}. With a domain in the list it is clear what is meant."""
    for key, value in parsed.items() if len(parsed) == 1 else ():
        if isinstance(value, list) and len(value) > 1 and not any(_domains(value, "")):
            raise SpecError(
                f"{where}: unknown domain {key!r}: {did_you_mean(key, _FUNCTIONS)}; if it is a constant list, write "
                f"{{{key}: {{choice: [{reprlib.repr(value)}]}}}}"
            )


def _number_from_yaml(value: Any) -> Any:
    """YAML 1.1 takes 1e-4 for a text, since it has no dot."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _is_finite(value: Any) -> bool:
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(float(value))
    except OverflowError:  # a whole number that no float can hold
        return False


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and abs(int(value)) <= LARGEST_INT


def _call(domain: Float | Integer) -> str:
    return f"{domain.function}({', '.join(map(reprlib.repr, domain.args))})"


# ------------------------------------------------------------------------------------------------ walking a definition


def _children(node: Any, name: str) -> list[tuple[str, Any]]:
    """The named parts of a dict or a list; a scalar has none."""
    if isinstance(node, dict):
        return [(f"{name}.{key}" if name else key, value) for key, value in node.items()]
    return [(f"{name}.{i}", item) for i, item in enumerate(node)] if isinstance(node, list) else []


def _domains(node: Any, name: str) -> Iterator[tuple[str, Domain]]:
    if isinstance(node, Domain):
        yield name, node
    options = list(node.options) if isinstance(node, Choice) else node
    for child_name, child in _children(options, name):
        yield from _domains(child, child_name)


def _resolve(node: Any, name: str, choose: Callable[[str, Domain], Any]) -> Any:
    if isinstance(node, Choice):
        index = choose(name, node)
        return _resolve(node.options[index], f"{name}.{index}", choose)
    if isinstance(node, Float | Integer):
        return choose(name, node)
    if isinstance(node, dict):
        return {key: _resolve(value, f"{name}.{key}" if name else key, choose) for key, value in node.items()}
    if isinstance(node, list):
        return [_resolve(item, f"{name}.{i}", choose) for i, item in enumerate(node)]
    return node


def _answers(node: Any, value: Any, name: str) -> dict[str, Any] | None:
    if isinstance(node, Choice):
        for i, option in enumerate(node.options):
            if (inner := _answers(option, value, f"{name}.{i}")) is not None:
                return {name: i, **inner}
        return None
    if isinstance(node, Float | Integer):
        return {name: value} if value in node else None
    if type(node) is not type(value):
        return None
    if isinstance(node, dict | list):
        nodes, values = dict(_children(node, name)), dict(_children(value, name))
        if nodes.keys() != values.keys():
            return None
        found: dict[str, Any] = {}
        for child, part in nodes.items():
            if (inner := _answers(part, values[child], child)) is None:
                return None
            found |= inner
        return found
    return {} if node == value else None


def _describe(node: Any) -> Any:
    if isinstance(node, Choice):
        return {node.function: [_describe(option) for option in node.options]}
    if isinstance(node, Float | Integer):
        return {node.function: node.args}
    if isinstance(node, dict):
        return {key: _describe(value) for key, value in node.items()}
    return [_describe(item) for item in node] if isinstance(node, list) else node


def _is_constant(node: Any) -> bool:
    if isinstance(node, Choice):
        return len(node.options) == 1 and _is_constant(node.options[0])
    if isinstance(node, Float | Integer):
        return isinstance(node, Integer) and node.high - node.low == 1
    return all(_is_constant(child) for _, child in _children(node, ""))


def _has_grid(node: Any) -> bool:
    return isinstance(node, Grid) or any(_has_grid(child) for _, child in _children(node, ""))


def _grid_size(node: Any) -> int:
    if isinstance(node, Grid):
        return sum(map(_grid_size, node.options))
    return math.prod(_grid_size(child) for _, child in _children(node, ""))


def _grid_point(node: Any, name: str, index: int) -> dict[str, int]:
    """Computed from the index alone, so that a searcher need remember no more than a number."""
    if isinstance(node, Grid):
        for i, option in enumerate(node.options):
            if index < (size := _grid_size(option)):
                return {name: i, **_grid_point(option, f"{name}.{i}", index)}
            index -= size
        raise IndexError(f"{name} has no such grid point")
    point: dict[str, int] = {}
    for child_name, child in reversed(_children(node, name)):
        index, digit = divmod(index, _grid_size(child))
        point = _grid_point(child, child_name, digit) | point
    return point
