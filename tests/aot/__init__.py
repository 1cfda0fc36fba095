"""Programs built without Python."""
