"""Settings of the calling thread for a `with` block or a decorated function."""

import functools
import inspect
import threading
from typing import Any

from ._core import _scopes as _core_scopes
from ._core import bfloat16, float16, parse_device


class _State(threading.local):
    """How many scopes of this thread are entered, and those that are begun for good, with the depth, and their kind."""

    def __init__(self):
        self.depth = 0
        self.begun = []

    def end_begun(self, depth, kind=None):
        for each in [each for each in reversed(self.begun) if each[0] >= depth and kind in (None, each[2])]:
            self.begun.remove(each)
            each[1].close()


_state = _State()


class _Scope:
    """Enters what `_make` makes. One object may be entered again before it was left, as by a function that calls itself."""

    def __init__(self):
        self._entered = []

    def _make(self):
        raise NotImplementedError

    def __enter__(self):
        self._entered.append(self._make())
        _state.depth += 1
        return self

    def __exit__(self, *exception):
        _state.end_begun(_state.depth + 1)
        _state.depth -= 1
        self._entered.pop().close()

    def __call__(self, function):
        if inspect.isgeneratorfunction(function):
            return self._around_each_step(function)

        @functools.wraps(function)
        def inside(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return inside

    def _around_each_step(self, function):
        """Between its steps a generator's caller has settings of its own."""

        @functools.wraps(function)
        def generator(*args, **kwargs):
            steps = function(*args, **kwargs)
            go_on, with_what = steps.send, None
            while True:
                try:
                    with self:
                        value = go_on(with_what)
                except StopIteration as end:
                    return end.value
                try:
                    go_on, with_what = steps.send, (yield value)
                except GeneratorExit:
                    steps.close()
                    raise
                except BaseException as error:
                    go_on, with_what = steps.throw, error

        return generator


class _WithoutArguments(_Scope):
    """As a decorator also without parentheses."""

    def __new__(cls, function=None):
        return super().__new__(cls) if function is None else cls()(function)

    def __init__(self, function=None):
        super().__init__()


class no_grad(_WithoutArguments):
    """Nothing inside is recorded for backward."""

    def _make(self):
        return _core_scopes.grad_mode_(False)


class enable_grad(_WithoutArguments):
    """What is inside is recorded for backward."""

    def _make(self):
        return _core_scopes.grad_mode_(True)


class _FromNowOn(_Scope):
    """A mode from the call on, or in a `with` block or a decorated function."""

    def __init__(self, mode):
        super().__init__()
        self._mode = bool(mode)
        _state.end_begun(_state.depth + 1, type(self))
        self._begun = _state.depth + 1, self._make(), type(self)
        _state.begun.append(self._begun)

    def _take_back(self):
        if self._begun in _state.begun:
            _state.begun.remove(self._begun)
            self._begun[1].close()

    def __enter__(self):
        self._take_back()
        return super().__enter__()

    def __call__(self, function):
        self._take_back()
        return super().__call__(function)


class set_grad_enabled(_FromNowOn):
    """Operations are recorded for backward, or not: from the call on, or in a `with` block or a decorated function."""

    def _make(self):
        return _core_scopes.grad_mode_(self._mode)


class inference_mode(_Scope):
    """As no_grad; with mode=False as enable_grad."""

    def __new__(cls, mode=True):
        return cls()(mode) if callable(mode) else super().__new__(cls)

    def __init__(self, mode=True):
        super().__init__()
        self._mode = bool(mode)

    def _make(self):
        return _core_scopes.grad_mode_(not self._mode)


_NOT_GIVEN: Any = object()


class autocast(_Scope):
    """Matrix products compute in a 16-bit dtype (docs/mixed_precision.md): autocast(dtype), or as in PyTorch
    autocast("cuda", dtype), whose dtype is bfloat16 on the cpu and float16 elsewhere unless it is given. None: off. The
    setting is the thread's, for tensors on any device.
    """

    def __init__(self, device_type=_NOT_GIVEN, dtype=_NOT_GIVEN, enabled=True):
        super().__init__()
        if device_type is _NOT_GIVEN and dtype is _NOT_GIVEN:
            raise TypeError("autocast: a device_type or a dtype is missing: autocast(bfloat16), autocast('cuda')")
        if isinstance(device_type, str):
            usual = bfloat16 if parse_device(device_type) == "cpu" else float16
            dtype = usual if dtype is _NOT_GIVEN or dtype is None else dtype
        elif dtype is _NOT_GIVEN:
            dtype = device_type
        self._dtype = dtype if enabled else None

    def _make(self):
        return _core_scopes.autocast_(self._dtype)


class detect_anomaly(_WithoutArguments):
    """Backward stops at the first operation that makes NaN of gradients without one, and names it."""

    def _make(self):
        return _core_scopes.detect_anomaly_(True)


class set_detect_anomaly(_FromNowOn):
    """detect_anomaly, or not: from the call on, or in a `with` block or a decorated function."""

    def __init__(self, mode, check_nan=True):
        super().__init__(mode and check_nan)

    def _make(self):
        return _core_scopes.detect_anomaly_(self._mode)
