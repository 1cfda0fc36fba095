"""L6: from a captured graph to something that runs: a list of steps (`passes`) and a road."""
