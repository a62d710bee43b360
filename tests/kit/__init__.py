"""What tests, programs and benchmarks share; no part of the product. What people test with is `harborage.testing`."""
