"""Process groups over TCP, and shared memory inside a host."""
