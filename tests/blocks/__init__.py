"""Popular blocks of networks, compiled against eager at every shape and layout."""
