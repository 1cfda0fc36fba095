"""Nested tensors: batches whose entries have different lengths."""
