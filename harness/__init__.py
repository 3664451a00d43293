"""What the tests share beyond the product: it imports nothing but the product."""
