"""`import torch`, answered by Lucerne: the hook, the names, the distribution."""
