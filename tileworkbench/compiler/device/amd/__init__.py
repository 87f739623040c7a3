"""AMD's GPUs: HIP text and the clang that makes code objects of it."""
