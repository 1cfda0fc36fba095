"""Groups, programs and their memory, on graphs made by chance."""
