"""Exported programs as native code that needs no Python (`lucerne.export.build` is the door)."""
