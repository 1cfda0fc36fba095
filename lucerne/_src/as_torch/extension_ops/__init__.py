"""Operators of torchvision and torchaudio, in Python: their own are C++ that cannot be loaded."""
