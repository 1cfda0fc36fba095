"""Other people's libraries, unmodified, on Lucerne behind `import torch`."""
