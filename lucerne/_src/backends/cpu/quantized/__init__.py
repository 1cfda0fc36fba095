"""Linear layers with weights in codes of 8 or 4 bits: see `blocks.py`."""
