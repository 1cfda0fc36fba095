"""L1: what an op is, how a call finds its way, and the graph every later stage works on."""
