"""How each op does many calls at once: the rules of `vmap`."""
