"""L4: graphs to programs: which ops become one kernel, in which order, in whose memory."""
