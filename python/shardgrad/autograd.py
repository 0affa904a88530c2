"""What PyTorch's programs call torch.autograd."""

from ._core import backward
from ._function import Function
from ._grad import grad
from ._scopes import detect_anomaly, enable_grad, inference_mode, no_grad, set_detect_anomaly, set_grad_enabled

__all__ = ["Function", "backward", "detect_anomaly", "enable_grad", "grad", "inference_mode", "no_grad", "set_detect_anomaly",
           "set_grad_enabled"]
