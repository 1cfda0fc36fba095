"""What loading and saving raise.

Whatever a file contains, `load` raises `LoadError` or one of its kinds, or `OSError` when the
system can't read it. `LoadError` is a `RuntimeError` and a `pickle.UnpicklingError`, so that
handlers written for torch keep working.
"""

from __future__ import annotations

import pickle


class LoadError(RuntimeError, pickle.UnpicklingError):
    """A file was not loaded. Nothing it contains was run."""


class UnsafeFileError(LoadError):
    """The file asks for something that no checkpoint needs, or for more memory than allowed."""


class CorruptFileError(LoadError):
    """The file is damaged: truncated, altered, or at odds with itself."""


class UnsupportedFileError(LoadError):
    """A sound file of a kind that Lucerne doesn't read."""


class UsersError(Exception):
    """Carries an exception of the user's own function through the reader, which blames files."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class SaveError(TypeError, pickle.PicklingError):
    """An object that the checkpoint format has no safe spelling for."""
