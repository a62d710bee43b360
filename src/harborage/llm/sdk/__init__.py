"""What the drivers over the providers' own client libraries share; the libraries themselves are imported by them."""
