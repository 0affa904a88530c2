"""Modules made of modules, which are named "0", "1", … or by their keys."""

from collections.abc import Mapping

from .._core._nn import Module


class _Listed(Module):
    """Modules in order, named "0", "1", …"""

    def append(self, module):
        """One more module at the end; the list itself."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules):
        """More modules at the end; the list itself."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, index, module):
        """One more module before place `index`; the list itself."""
        modules = list(self)
        modules.insert(index, module)
        self._number(modules)
        return self

    def pop(self, index=-1):
        """Takes a module out."""
        module = self[index]
        del self[index]
        return module

    def __setitem__(self, index, module):
        children = self.named_children()
        children[index] = children[index][0], module
        self._set_children(children)

    def __delitem__(self, index):
        modules = list(self)
        del modules[index]
        self._number(modules)

    def _number(self, modules):
        self._set_children([(str(i), module) for i, module in enumerate(modules)])

    def __len__(self):
        return len(self.named_children())

    def __iter__(self):
        return iter(self.children())

    def __getitem__(self, index):
        """A module, or of a slice a list of the same kind."""
        chosen = self.named_children()[index]
        return self._of(chosen) if isinstance(index, slice) else chosen[1]


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

    def _of(self, children):
        return type(self)(dict(children))

    def forward(self, x):
        """What a call computes."""
        for module in self.children():
            x = module(x)
        return x


class ModuleList(_Listed):
    """A list of modules, which its owner calls as it likes."""

    def __init__(self, modules=()):
        super().__init__()
        self.extend(modules)

    def _of(self, children):
        return type(self)(module for _, module in children)


class ModuleDict(Module):
    """Modules by name, in the order they were added, which their owner calls as it likes."""

    def __init__(self, modules=None):
        super().__init__()
        self.update(modules or {})

    def __setitem__(self, name, module):
        if name in self:
            self._set_children([(other, module if other == name else kept) for other, kept in self.named_children()])
        else:
            self.add_module(name, module)

    def __getitem__(self, name):
        named = dict(self.named_children())
        if name not in named:
            raise KeyError(f"there is no module {name!r}; there are {', '.join(map(repr, named)) or 'none'}")
        return named[name]

    def __delitem__(self, name):
        self.pop(name)

    def pop(self, name):
        """Takes a module out."""
        module = self[name]
        self._set_children([(other, kept) for other, kept in self.named_children() if other != name])
        return module

    def update(self, modules):
        """More modules by name, or others in their place."""
        for name, module in dict(modules).items():
            self[name] = module

    def __contains__(self, name):
        return name in dict(self.named_children())

    def __len__(self):
        return len(self.named_children())

    def __iter__(self):
        return iter(dict(self.named_children()))

    def keys(self):
        """The names."""
        return dict(self.named_children()).keys()

    def values(self):
        """The modules."""
        return dict(self.named_children()).values()

    def items(self):
        """Pairs of a name and a module."""
        return dict(self.named_children()).items()
