"""The autograd engine: nodes recorded by eager calls, walked backwards over dispatched ops."""
