"""Modules made of modules, which are named "0", "1", … or by their keys."""

from collections.abc import Mapping

from .._core._nn import Module


class _Listed(Module):
    """Modules in order, named "0", "1", …"""

    def append(self, module):
        self.add_module(str(len(self)), module)
        return self

    def __len__(self):
        return len(self.named_children())

    def __iter__(self):
        return iter(self.children())

    def __getitem__(self, i):
        return self.children()[i]


class Sequential(_Listed):
    """Runs modules in turn, each on what the one before gave."""

    def __init__(self, *modules):
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            modules = list(modules[0].items())
        else:
            modules = [(str(i), module) for i, module in enumerate(modules)]
        for name, module in modules:
            self.add_module(name, module)

    def forward(self, x):
        for module in self.children():
            x = module(x)
        return x


class ModuleList(_Listed):
    """A list of modules, which its owner calls as it likes."""

    def __init__(self, modules=()):
        super().__init__()
        self.extend(modules)

    def extend(self, modules):
        for module in modules:
            self.append(module)
        return self


class ModuleDict(Module):
    """Modules by name, in the order they were added, which their owner calls as it likes."""

    def __init__(self, modules=None):
        super().__init__()
        for name, module in dict(modules or {}).items():
            self[name] = module

    def __setitem__(self, name, module):
        self.add_module(name, module)

    def __getitem__(self, name):
        named = dict(self.named_children())
        if name not in named:
            raise KeyError(f"there is no module {name!r}; there are {', '.join(map(repr, named)) or 'none'}")
        return named[name]

    def __contains__(self, name):
        return name in dict(self.named_children())

    def __len__(self):
        return len(self.named_children())

    def __iter__(self):
        return iter(dict(self.named_children()))

    def keys(self):
        return dict(self.named_children()).keys()

    def values(self):
        return dict(self.named_children()).values()

    def items(self):
        return dict(self.named_children()).items()
