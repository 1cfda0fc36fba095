"""One module per family of primitives; importing this package fills the table."""
