# Sourced: sets `python` to an interpreter that can import torch. SHARDGRAD_TORCH_PYTHON names one; otherwise PyTorch is
# installed from PyPI into a virtual environment outside the tree (SHARDGRAD_TORCH_VENV, default ~/.cache/shardgrad-torch).
python=${SHARDGRAD_TORCH_PYTHON:-}
if [ -z "$python" ]; then
  venv=${SHARDGRAD_TORCH_VENV:-$HOME/.cache/shardgrad-torch}
  python=$venv/bin/python
  if ! "$python" -c 'import torch' 2>/dev/null; then
    echo "installing PyTorch from PyPI into $venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet torch numpy
  fi
fi
