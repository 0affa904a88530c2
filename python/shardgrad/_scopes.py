"""Settings of the calling thread for a `with` block or a decorated function."""

from contextlib import ContextDecorator

from ._core import _scopes as _core_scopes


class _Scope(ContextDecorator):
    """Enters what `_make` makes. One object may be entered again before it was left, as by a function that calls itself."""

    def __init__(self):
        self._entered = []

    def _make(self):
        raise NotImplementedError

    def __enter__(self):
        self._entered.append(self._make())
        return self

    def __exit__(self, *exception):
        self._entered.pop().close()


class set_grad_enabled(_Scope):
    """Operations are recorded for backward, or not."""

    def __init__(self, mode):
        super().__init__()
        self._mode = bool(mode)

    def _make(self):
        return _core_scopes.grad_mode_(self._mode)


class no_grad(set_grad_enabled):
    """Nothing inside is recorded for backward."""

    def __init__(self):
        super().__init__(False)


class enable_grad(set_grad_enabled):
    """What is inside is recorded for backward."""

    def __init__(self):
        super().__init__(True)


class autocast(_Scope):
    """Matrix products compute in a 16-bit dtype (docs/mixed_precision.md); None: off."""

    def __init__(self, dtype):
        super().__init__()
        self._dtype = dtype

    def _make(self):
        return _core_scopes.autocast_(self._dtype)


class detect_anomaly(_Scope):
    """Backward stops at the first operation that makes NaN of gradients without one, and names it."""

    def _make(self):
        return _core_scopes.detect_anomaly_()
