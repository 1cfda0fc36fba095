"""L2: the op table. One entry per op; importing a family enters it."""
