"""One module per family of primitives, imported when first needed: `table.FAMILIES` lists them."""
