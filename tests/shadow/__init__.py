"""Shadow mode: planted bugs are found and named, right programs raise no alarm."""
