"""Module names of the package's own classes and functions.

Behind `lucerne.as_torch` a public class says `torch.nn.modules.linear` where it otherwise says
`lucerne.nn.modules.linear`, because libraries and pickles look there. So nobody compares
`x.__module__` with our name directly: `own_home(x.__module__)` is the name inside the package.
"""

from __future__ import annotations


class TorchName:
    """Whether modules named `torch...` are this package's."""

    is_ours = False


def own_home(module: str) -> str:
    """The name of a module as it is inside the package, whatever it calls itself.

    >>> own_home("lucerne.nn"), own_home("numpy.linalg")
    ('lucerne.nn', 'numpy.linalg')
    """
    if TorchName.is_ours and (module == "torch" or module.startswith("torch.")):
        return "lucerne" + module[len("torch") :]
    return module
