"""The shared support of tests; it imports only the product."""
