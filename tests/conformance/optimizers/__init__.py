"""M10: the optimizers of torch's optim_db, and the schedulers by rows of our own."""
