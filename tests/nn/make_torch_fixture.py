#!/usr/bin/env python3
"""Writes torch_fixture.h: losses, gradients and results of small PyTorch models in f64, cast to f32 by the test.

    make_torch_fixture.py > torch_fixture.h        (made with PyTorch 2.15)

Element i of the k-th parameter is 0.5 sin(1.3 i + k); element i of an input is cos(0.9 i). The test does the same.
"""
import torch
from torch import nn


def values(shape, formula):
    count = int(torch.tensor(shape).prod())
    return formula(torch.arange(count, dtype=torch.float64)).reshape(shape)


def set_parameters(model):
    for k, parameter in enumerate(model.parameters()):
        parameter.data = values(parameter.shape, lambda i: 0.5 * torch.sin(1.3 * i + k))


def show(name, tensor):
    numbers = tensor.detach().flatten().tolist()
    rows = [", ".join(repr(v) for v in numbers[i:i + 4]) for i in range(0, len(numbers), 4)]
    print(f"inline const std::vector<double> {name} = {{\n    " + ",\n    ".join(rows) + "};")


def show_all(name, model, result, loss):
    loss.backward()
    show(f"{name}_result", result)
    show(f"{name}_loss", loss)
    for parameter_name, parameter in model.named_parameters():
        show(f"{name}_" + parameter_name.replace(".", "_"), parameter.grad)


def show_names(name, model):
    pairs = ",\n    ".join(f'{{"{parameter}", {name}_{parameter}}}' for parameter, _ in model.named_parameters())
    print(f"inline const std::map<std::string, std::vector<double>> {name}_gradients = {{\n    {pairs}}};")


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.norm = nn.LayerNorm(4)
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(8, 3)

    def forward(self, ids):
        return self.down(nn.functional.gelu(self.up(self.norm(self.embed(ids)))))


print("#pragma once\n// Made by make_torch_fixture.py.\n\n#include <map>\n#include <string>\n#include <vector>\n")
print(f"namespace torch_fixture {{\n\n// clang-format off\n// PyTorch {torch.__version__}")

mlp = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.BatchNorm1d(7), nn.Linear(7, 4), nn.Tanh(),
                    nn.Linear(4, 2), nn.Sigmoid()).double()
set_parameters(mlp)
result = mlp(values((6, 5), lambda i: torch.cos(0.9 * i)))
show_all("mlp", mlp, result, nn.MSELoss()(result, values((6, 2), lambda i: torch.cos(0.9 * i) > 0).double()))
show("mlp_running_mean", mlp[2].running_mean)
show("mlp_running_var", mlp[2].running_var)

classifier = Classifier().double()
set_parameters(classifier)
result = classifier(torch.tensor([0, 3, 5, 3, 1]))
show_all("classifier", classifier, result, nn.CrossEntropyLoss()(result, torch.tensor([2, 0, -100, 1, 1])))

# With the states at the end in the loss, so that their gradients count too.
lstm = nn.LSTM(3, 2, num_layers=2, bidirectional=True).double()
set_parameters(lstm)
y, (h, c) = lstm(values((5, 3, 3), lambda i: torch.cos(0.9 * i)))
show_all("lstm", lstm, y, (y * y).sum() + h.sum() + (c * c).sum())
show("lstm_h", h)
show("lstm_c", c)
show_names("lstm", lstm)

gru = nn.GRU(3, 4, num_layers=2, batch_first=True).double()
set_parameters(gru)
y, h = gru(values((2, 5, 3), lambda i: torch.cos(0.9 * i)), values((2, 2, 4), lambda i: torch.cos(0.9 * i)))
show_all("gru", gru, y, (y * y).sum() + h.sum())
show("gru_h", h)
show_names("gru", gru)
print("// clang-format on\n\n}  // namespace torch_fixture")
