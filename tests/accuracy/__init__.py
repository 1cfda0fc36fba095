"""How exact float32 functions are, ours beside torch's (`python -m tests.accuracy`)."""
