"""Whether compiling pays: by measurement, in the first calls."""
