"""Gradients without touching the leaves."""

from typing import Optional, Sequence, Union

from ._core import Tensor, _grad


def _listed(given):
    return [given] if isinstance(given, Tensor) else list(given)


def grad(outputs: Union[Tensor, Sequence[Tensor]], inputs: Union[Tensor, Sequence[Tensor]],
         grad_outputs: Union[Tensor, Sequence[Optional[Tensor]], None] = None,
         retain_graph: bool = False) -> tuple[Optional[Tensor], ...]:
    """The gradients of the outputs' sum for each of `inputs`, leaves or computed; None where it does not depend on one.

    Nothing is added to leaves. `grad_outputs` multiply the outputs; those of one element need none.
    """
    gradients = [] if grad_outputs is None else _listed(grad_outputs)
    return tuple(_grad(_listed(outputs), _listed(inputs), gradients, retain_graph))
