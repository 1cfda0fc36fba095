"""How processes find each other, and know that they may talk."""
