"""What PyTorch users do on an ordinary day: their programs compiled, their mistakes."""
