"""What training programs need beside tensors and modules."""

from . import data
