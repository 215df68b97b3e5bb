"""Exceptions a user can see. Each docstring shows an example and the cure."""

from __future__ import annotations


class StatefulError(Exception):
    """Base class of everything this distribution raises on purpose.

    Catch it to tell a refused input from a defect of the library.
    """


class InvalidArgumentError(StatefulError, ValueError):
    """An argument has a value the function cannot take.

    Example: ``asyncops.check(fn, calls=0)``. The message names the argument and the values that are allowed.
    """


class UnmodelledError(StatefulError, NotImplementedError):
    """A primitive or parameter has no model here.

    Example: discharging a kernel that calls a primitive of your own. The cure is
    ``stateful.register_effects(primitive, rule)``; the message names the primitive and the line.
    """


class LintUsageError(StatefulError):
    """The linter was asked for something it cannot do; nothing was checked.

    Example: ``asyncops lint no_such_file.py``, or an unknown key under ``[tool.asyncops]``. The message names the
    argument or the key, and what is allowed there.
    """


class FindingsError(StatefulError):
    """Kernels that were checked on the way have findings.

    Raised at the end of ``with asyncops.checking():``; the message is the report. Mend the kernels, or collect the
    findings instead: ``asyncops.checking(on_finding="collect")``.
    """


class CompilerError(StatefulError):
    """A program does not compile ahead of time, or the compiler is not there.

    Example: ``asyncops.compile_for("v5e:2x2", fn, x)`` without ``libtpu``; the message names the cure
    (``pip install libtpu``), or what the kernel compiler refuses and on which line.
    """


class HloError(StatefulError, ValueError):
    """A text is no HLO module that can be followed.

    Example: ``asyncops.check_compiled("")``. Give ``compiled.as_text()``, or a file that ``--xla_dump_to`` wrote
    after optimization; the message tells what is missing or which limit was exceeded.
    """


class FutureError(StatefulError):
    """A future was not used exactly once, in the way its operation asks for. See the subclasses."""


class FutureReusedError(FutureError):
    """A future was consumed twice, or once in a loop body that runs more than once.

    Example: ``y = ppermute_done(fut); z = ppermute_done(fut)``. The message names the start and both dones. Use ``y``
    twice, or start the operation twice.
    """


class FutureDroppedError(FutureError):
    """On some path a future reaches no done: its buffers would be freed while the copy runs.

    Example: ``cond(p, lambda f: ppermute_done(f), lambda f: x, fut)``. The message names the start and the path. Call
    the done on every path, or start the operation only where it is finished.
    """


class FutureMismatchError(FutureError, TypeError):
    """A future was given to the done of another operation, or its parts were mixed with those of another future.

    Example: ``all_gather_done(ppermute_start(x, "x", perm))``. The message names the start and the done that fits.
    """


class InFlightAccessError(FutureError):
    """A Ref was written, or a destination read, while an operation started on it may still use it.

    Example: ``fut = ppermute_start_ref(x, y, ...); x[...] += 1; ppermute_done_ref(fut)`` changes what is being sent.
    Move the access behind the done, or work on another Ref.
    """


class InFlightMovedError(FutureError):
    """A buffer in flight would have to be copied or moved to compile this program.

    Example: ``jnp.stack`` or an ordinary ``jax.lax.scan`` over a stack of futures, on a TPU. The message names the
    start and what moves it. Use ``asyncops.scan``, or the Ref form with slots.
    """


class UnfinishedFutureWarning(RuntimeWarning):
    """A future went out of scope and no done was called on it, as with a coroutine that was never awaited."""


class SemaphoreTypeError(StatefulError, TypeError):
    """A semaphore was used in a way its type does not allow.

    Example: ``pl.semaphore_signal`` on a ``pltpu.SemaphoreType.DMA``. The message names the semaphore, its type, and
    what to use instead.
    """


class UnsatisfiedWaitError(StatefulError, RuntimeError):
    """A discharged function waits for counts that nothing brings: on a device it would wait for ever.

    Example: a ``dma_wait`` for 8192 bytes after one copy of 4096. The message names the semaphore and the line. Start
    the missing copy before the wait, or wait for what was started.
    """
