"""A model in stages on parts of a mesh, and the orders in which micro-batches go through them."""
