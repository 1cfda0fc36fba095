"""M9: the modules of torch.nn, by torch's module_db and by rows of our own."""
