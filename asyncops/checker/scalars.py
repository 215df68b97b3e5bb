"""Scalar arithmetic of the skeleton: what integer and boolean equations compute, over terms.

A value is an ``int`` or term (integers), a ``bool`` or predicate (booleans), a small numpy array whose elements are
known, or None (not known, or not an integer). Arrays of one element are treated as scalars, whatever their rank.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.core import Tracer

from stateful import terms
from stateful.terms import Comparison, Junction, Linear

Value = Any
Rule = Callable[[dict[str, Any], tuple[Value, ...], Any], Value]

ARRAY_LIMIT = 4096
"""Elements up to which a known integer array is evaluated."""


def is_predicate(x: Value) -> bool:
    """True for booleans: known ones, comparisons and their combinations."""
    return isinstance(x, bool | Comparison | Junction)


def is_scalar(x: Value) -> bool:
    """True for integers and booleans, known or symbolic."""
    return isinstance(x, int | Linear | Comparison | Junction)


def as_term(x: Value) -> terms.Term:
    """A scalar as an integer term."""
    return terms.from_predicate(x) if is_predicate(x) else x


def as_predicate(x: Value) -> terms.Predicate:
    """A scalar as a predicate: different from zero."""
    return x if is_predicate(x) else terms.ne(x, 0)


def concrete(x: Any) -> Value:
    """A value of the program (literal, constant, argument) in our form."""
    if isinstance(x, bool | np.bool_):
        return bool(x)
    if isinstance(x, int | np.integer):
        return int(x)
    dtype = getattr(x, "dtype", None)
    if dtype is None or not (np.issubdtype(dtype, np.integer) or dtype == np.bool_):
        return None
    if math.prod(x.shape) > ARRAY_LIMIT or isinstance(x, Tracer) or not hasattr(x, "__array__"):
        return None
    array = np.asarray(x)
    return concrete(array.reshape(())[()]) if array.size == 1 else array


def _shift_left(x: terms.Term, y: terms.Term) -> Value:
    if type(y) is int and 0 <= y < 63:
        return terms.scale(x, 1 << y)
    return terms.opaque("shift_left", x, y)


def _shift_right(x: terms.Term, y: terms.Term) -> Value:
    if type(y) is int and 0 <= y < 63:
        return terms.floordiv(x, 1 << y)
    return terms.opaque("shift_right", x, y)


def _shift_right_logical(x: terms.Term, y: terms.Term) -> Value:
    return _shift_right(x, y) if terms.is_nonnegative(x) else terms.opaque("shift_right_logical", x, y)


def _bit_and(x: Value, y: Value) -> Value:
    if is_predicate(x) and is_predicate(y):
        return terms.logical_and(x, y)
    x, y = as_term(x), as_term(y)
    if type(x) is int and type(y) is int:
        return x & y
    if type(x) is int:
        x, y = y, x
    if type(y) is int and y >= 0 and y & (y + 1) == 0:
        return terms.mod(x, y + 1)
    high = y if type(y) is int and y >= 0 else None
    return terms.opaque("and", x, y, low=None if high is None else 0, high=high)


def _bit_or(x: Value, y: Value) -> Value:
    if is_predicate(x) and is_predicate(y):
        return terms.logical_or(x, y)
    x, y = as_term(x), as_term(y)
    return x | y if type(x) is int and type(y) is int else terms.opaque("or", x, y)


def _bit_xor(x: Value, y: Value) -> Value:
    if is_predicate(x) and is_predicate(y):
        if isinstance(x, bool) or isinstance(y, bool):
            p, q = (x, y) if isinstance(x, bool) else (y, x)
            return terms.logical_not(q) if p else q
        both = terms.logical_and(x, terms.logical_not(y))
        return terms.logical_or(both, terms.logical_and(terms.logical_not(x), y))
    x, y = as_term(x), as_term(y)
    return x ^ y if type(x) is int and type(y) is int else terms.opaque("xor", x, y)


def _not(x: Value) -> Value:
    return terms.logical_not(x) if is_predicate(x) else terms.sub(-1, x)


def _sign(x: terms.Term) -> Value:
    if type(x) is int:
        return (x > 0) - (x < 0)
    return terms.sub(terms.from_predicate(terms.lt(0, x)), terms.from_predicate(terms.lt(x, 0)))


def _abs(x: terms.Term) -> Value:
    return x if terms.is_nonnegative(x) else terms.maximum(x, terms.negate(x))


def _equal(negated: bool) -> Callable[[Value, Value], Value]:
    def rule(x: Value, y: Value) -> Value:
        if is_predicate(x) and is_predicate(y):
            differ = _bit_xor(x, y)
            return differ if negated else terms.logical_not(differ)
        return (terms.ne if negated else terms.eq)(as_term(x), as_term(y))

    return rule


def _on_terms(f: Callable[..., Value]) -> Callable[..., Value]:
    return lambda *xs: f(*map(as_term, xs))


# Elementwise operations: on scalars through terms, on known arrays through numpy.
ELEMENTWISE: dict[Any, tuple[Callable[..., Value], Callable[..., Any]]] = {
    lax.add_p: (_on_terms(terms.add), np.add),
    lax.sub_p: (_on_terms(terms.sub), np.subtract),
    lax.mul_p: (_on_terms(terms.mul), np.multiply),
    lax.div_p: (_on_terms(terms.truncdiv), lambda a, b: np.trunc(a / b).astype(a.dtype)),
    lax.rem_p: (_on_terms(terms.rem), np.fmod),
    lax.neg_p: (_on_terms(terms.negate), np.negative),
    lax.sign_p: (_on_terms(_sign), np.sign),
    lax.abs_p: (_on_terms(_abs), np.abs),
    lax.max_p: (_on_terms(terms.maximum), np.maximum),
    lax.min_p: (_on_terms(terms.minimum), np.minimum),
    lax.eq_p: (_equal(False), np.equal),
    lax.ne_p: (_equal(True), np.not_equal),
    lax.lt_p: (_on_terms(terms.lt), np.less),
    lax.le_p: (_on_terms(terms.le), np.less_equal),
    lax.gt_p: (_on_terms(lambda a, b: terms.lt(b, a)), np.greater),
    lax.ge_p: (_on_terms(lambda a, b: terms.le(b, a)), np.greater_equal),
    lax.and_p: (_bit_and, np.bitwise_and),
    lax.or_p: (_bit_or, np.bitwise_or),
    lax.xor_p: (_bit_xor, np.bitwise_xor),
    lax.not_p: (_not, np.invert),
    lax.shift_left_p: (_on_terms(_shift_left), np.left_shift),
    lax.shift_right_arithmetic_p: (_on_terms(_shift_right), np.right_shift),
    lax.shift_right_logical_p: (_on_terms(_shift_right_logical), np.right_shift),
}

SAME_VALUE = {
    lax.squeeze_p,
    lax.reshape_p,
    lax.broadcast_in_dim_p,
    lax.copy_p,
    lax.transpose_p,
    lax.reduce_precision_p,
}


def integer_dtype(dtype: Any) -> np.dtype[Any] | None:
    """The numpy dtype where it is one of integers or booleans; None for floats and for JAX's extended dtypes."""
    try:
        known = np.dtype(dtype)
    except TypeError:
        return None
    return known if known == np.bool_ or np.issubdtype(known, np.integer) else None


def _convert(params: dict[str, Any], args: tuple[Value, ...], out: Any) -> Value:
    (x,) = args
    dtype = integer_dtype(params["new_dtype"])
    if dtype is None or x is None:
        return None
    if isinstance(x, np.ndarray):
        return x.astype(dtype)
    return as_predicate(x) if dtype == np.bool_ else as_term(x)


def _select_n(params: dict[str, Any], args: tuple[Value, ...], out: Any) -> Value:
    which, *cases = args
    if not is_scalar(which):
        return None
    if type(which) is int:
        return cases[which] if 0 <= which < len(cases) else None
    p = as_predicate(which)
    if isinstance(p, bool):
        return cases[int(p)]
    if len(cases) != 2 or not all(is_scalar(c) for c in cases):
        return None
    no, yes = cases
    if is_predicate(no) and is_predicate(yes):
        return terms.logical_or(terms.logical_and(p, yes), terms.logical_and(terms.logical_not(p), no))
    return terms.select(p, as_term(yes), as_term(no))


def _clamp(params: dict[str, Any], args: tuple[Value, ...], out: Any) -> Value:
    if not all(is_scalar(a) for a in args):
        return None
    low, x, high = map(as_term, args)
    return terms.minimum(terms.maximum(x, low), high)


def _integer_pow(params: dict[str, Any], args: tuple[Value, ...], out: Any) -> Value:
    (x,), y = args, params["y"]
    if not is_scalar(x) or y < 0 or y > 4:
        return None
    result: terms.Term = 1
    for _ in range(y):
        result = terms.mul(result, as_term(x))
    return result


def _iota(params: dict[str, Any], args: tuple[Value, ...], out: Any) -> Value:
    if args or math.prod(out.shape) > ARRAY_LIMIT:
        return None
    if math.prod(out.shape) == 1:
        return 0
    index = np.arange(out.shape[params["dimension"]], dtype=out.dtype)
    shape = [1] * len(out.shape)
    shape[params["dimension"]] = -1
    return np.broadcast_to(index.reshape(shape), out.shape)


SPECIAL: dict[Any, Rule] = {
    lax.convert_element_type_p: _convert,
    lax.select_n_p: _select_n,
    lax.clamp_p: _clamp,
    lax.integer_pow_p: _integer_pow,
    lax.iota_p: _iota,
}

_MODELLED_BOOLEANS = (bool, np.bool_)


def is_small_integer(aval: Any) -> bool:
    """True for abstract values the skeleton follows: integers and booleans of few elements."""
    shape = getattr(aval, "shape", ())
    if integer_dtype(getattr(aval, "dtype", None) or np.float32) is None:
        return False
    return all(isinstance(d, int) for d in shape) and math.prod(shape) <= ARRAY_LIMIT


def element_count(aval: Any) -> int:
    """Number of elements of an abstract value with a static shape."""
    return math.prod(getattr(aval, "shape", ()))


def fresh(
    name: str, dtype: Any, index: tuple[Any, ...] | None = None, version: Any = 0,
    bounds: tuple[int | None, int | None] = (None, None),
) -> Value:  # fmt: skip
    """An unknown scalar of ``dtype``: a predicate for booleans, bounded for unsigned integers.

    With ``index`` it is that element of a memory called ``name``.
    """
    is_bool = np.dtype(dtype) == np.bool_
    low = 0 if is_bool or np.issubdtype(dtype, np.unsignedinteger) else None
    low = max((x for x in (low, bounds[0]) if x is not None), default=None)
    high = 1 if is_bool else bounds[1]
    value = terms.symbol(name, low, high) if index is None else terms.element(name, index, version, low, high)
    return terms.ne(value, 0) if is_bool else value


def evaluate(eqn: Any, args: tuple[Value, ...]) -> Value:
    """The value of a pure one-result equation; None where it is not known."""
    primitive, params, out = eqn.primitive, eqn.params, eqn.outvars[0].aval
    rule = SPECIAL.get(primitive)
    if rule is not None and not any(isinstance(a, np.ndarray) for a in args):
        return rule(params, args, out)
    if primitive in SAME_VALUE and args and is_scalar(args[0]):
        return args[0] if element_count(out) == 1 else _spread(args[0], out)
    both = ELEMENTWISE.get(primitive)
    if both is not None and all(is_scalar(a) for a in args):
        return both[0](*args)
    if any(a is None or isinstance(a, Linear | Comparison | Junction) for a in args):
        return _opaque(eqn, args)
    return _evaluate_arrays(eqn, args)


def _spread(x: Value, out: Any) -> Value:
    if type(x) not in (int, bool) or element_count(out) > ARRAY_LIMIT:
        return None
    return np.full(out.shape, x, dtype=out.dtype)


def _opaque(eqn: Any, args: tuple[Value, ...]) -> Value:
    out = eqn.outvars[0].aval
    if element_count(out) != 1 or not args or not all(is_scalar(a) for a in args):
        return None
    name = f"{eqn.primitive.name}({', '.join(map(repr, args))})"
    return fresh(name, out.dtype)


def _evaluate_arrays(eqn: Any, args: tuple[Value, ...]) -> Value:
    """Known small arrays: numpy, or the primitive itself, eagerly, on the host."""
    arrays = [np.asarray(a, dtype=v.aval.dtype).reshape(v.aval.shape) for a, v in zip(args, eqn.invars)]
    both = ELEMENTWISE.get(eqn.primitive)
    if both is not None:
        return concrete(both[1](*arrays).astype(eqn.outvars[0].aval.dtype))
    moved = _MOVES.get(eqn.primitive)
    if moved is not None and len(arrays) == 1:
        return concrete(moved(arrays[0], eqn.params))
    return concrete(_run_by_jax(eqn, arrays))


_RUN: OrderedDict[Any, tuple[Any, np.ndarray]] = OrderedDict()
"""What JAX answered last for an equation (kept alive, so that its id stays its own) and the bytes of its inputs."""
MOST_KEPT = 2048


def _run_by_jax(eqn: Any, arrays: list[np.ndarray]) -> np.ndarray:
    """The equation on these arrays. Loops ask the same again and again, and JAX takes a millisecond each time."""
    key = (id(eqn), *(a.tobytes() for a in arrays))
    kept = _RUN.get(key)
    if kept is not None:
        return kept[1]
    with jax.ensure_compile_time_eval():
        result = eqn.primitive.bind(*arrays, **eqn.params)
    found = np.asarray(result[0] if eqn.primitive.multiple_results else result)
    found.setflags(write=False)
    _RUN[key] = (eqn, found)
    if len(_RUN) > MOST_KEPT:
        _RUN.popitem(last=False)
    return found


def _broadcast(x: np.ndarray, params: dict[str, Any]) -> np.ndarray:
    shape = [1] * len(params["shape"])
    for n, d in zip(x.shape, params["broadcast_dimensions"]):
        shape[d] = n
    return np.broadcast_to(x.reshape(shape), params["shape"])


# What only arranges elements anew.
_MOVES: dict[Any, Callable[[np.ndarray, dict[str, Any]], np.ndarray]] = {
    lax.broadcast_in_dim_p: _broadcast,
    lax.reshape_p: lambda x, params: x.reshape(params["new_sizes"]),
    lax.squeeze_p: lambda x, params: np.squeeze(x, tuple(params["dimensions"])),
    lax.transpose_p: lambda x, params: np.transpose(x, params["permutation"]),
}
