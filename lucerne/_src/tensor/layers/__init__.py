"""Tensors that stand for something else: layers of transforms (`layer`), conjugate and negative
views.
"""
