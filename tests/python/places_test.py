"""Dtypes and devices, wherever one is taken."""

import pytest
import shardgrad as sg
from shardgrad import nn


@pytest.mark.parametrize("wrong", [1, True, 0, "float64"])
def test_only_a_dtype_is_one(wrong):
    x = sg.ones(2)
    takers = [lambda: sg.zeros(1, dtype=wrong), lambda: sg.tensor([1.], dtype=wrong), lambda: sg.arange(3, dtype=wrong),
              lambda: x.new_zeros(2, dtype=wrong), lambda: x.to(dtype=wrong), lambda: nn.Linear(1, 1).to(dtype=wrong),
              lambda: sg.autocast(wrong).__enter__(),
              lambda: sg.one_hot(sg.tensor([0]), 2, dtype=wrong),
              lambda: sg.fully_shard(nn.Linear(1, 1), param_dtype=wrong), lambda: x.to(wrong), lambda: nn.Linear(1, 1).to(wrong)]
    for take in takers:
        with pytest.raises((TypeError, sg.InputError)):
            take()
    assert sg.zeros(1, dtype=sg.float64).dtype == sg.float64 and sg.zeros(1, dtype=None).dtype == sg.float32


def test_a_bool_after_the_place_is_non_blocking():
    x = sg.ones(2)
    assert x.to("cpu", True).dtype == sg.float32 and x.to("cpu", sg.float64, True).dtype == sg.float64 == x.to(sg.float64, False).dtype
    assert nn.Linear(1, 1).to("cpu", sg.float64, True).weight.dtype == sg.float64
    with pytest.raises(sg.InputError, match="to: 'True'"):
        x.to(True)


TAKERS = [lambda d: sg.zeros(2, device=d), lambda d: sg.tensor([1.], device=d), lambda d: sg.as_tensor([1.], device=d), lambda d: sg.ones(1).to(d),
          lambda d: sg.ones(1).to(device=d), lambda d: sg.ones(1).new_full((1,), 2., device=d), lambda d: sg.arange(2, device=d),
          lambda d: sg.rand(2, device=d), lambda d: nn.Linear(1, 1).to(d).weight, lambda d: nn.Linear(1, 1).to(device=d).weight,
          lambda d: sg.zeros(1, device=sg.device(d))]


@pytest.mark.parametrize("take", TAKERS)
def test_a_device_has_number_0_or_none(take):
    assert take("cpu").device == take("cpu:0").device == take(sg.device("cpu:0")).device == "cpu"
    for wrong in "cpu:1", "cpu:", "cuda:1", "cpu:0:0":
        with pytest.raises(sg.InputError, match="device: there is no .*; write 'c"):
            take(wrong)
    with pytest.raises(sg.InputError, match="a rank has one device; write 'cuda'"):
        take(0)


def test_a_module_goes_to_a_dtype_and_a_device():
    layer = nn.Linear(2, 2)
    assert layer.to("cpu", sg.float64) is layer and layer.weight.dtype == sg.float64
    assert layer.to(dtype=sg.float32).weight.dtype == sg.float32
    assert layer.to(device="cpu:0", dtype=sg.bfloat16).weight.dtype == sg.bfloat16
    for wrong in (lambda: layer.to(1.5), lambda: layer.to(sg.float32, "nowhere")):
        with pytest.raises(sg.InputError):
            wrong()
    assert layer.weight.dtype == sg.bfloat16


@pytest.mark.skipif(sg.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_has_number_0():
    for what in sg.ones(1), nn.Linear(1, 1):
        for named in (), (0,), ("cuda:0",), (sg.device("cuda"),):
            with pytest.raises(sg.MissingError):
                what.cuda(*named)
        with pytest.raises(sg.InputError, match="device 1: a rank has one device"):
            what.cuda(1)
        with pytest.raises(sg.InputError, match="no GPU"):
            what.cuda("cpu")


def test_autocast_is_told_of_what():
    for bare in {}, {"enabled": True}:
        with pytest.raises(TypeError, match="device_type"):
            sg.autocast(**bare)
    x = sg.ones(2, 2)
    for scope, dtype in ((sg.autocast("cpu"), sg.bfloat16), (sg.autocast("cpu", enabled=False), sg.float32), (sg.autocast(None), sg.float32),
                         (sg.autocast(sg.float16), sg.float16), (sg.autocast(dtype=sg.bfloat16), sg.bfloat16)):
        with scope:
            assert (x @ x).dtype == dtype


def test_inference_mode_has_a_mode():
    with sg.inference_mode():
        assert not sg.is_grad_enabled()
        with sg.inference_mode(mode=False):
            assert sg.is_grad_enabled()
        with sg.inference_mode(False), sg.inference_mode(True):
            assert not sg.is_grad_enabled()

    @sg.inference_mode
    def bare():
        return sg.is_grad_enabled()

    @sg.inference_mode()
    def called():
        return sg.is_grad_enabled()

    assert bare() is called() is False and sg.is_grad_enabled()
