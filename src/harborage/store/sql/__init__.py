"""What the drivers over databases share: how lists are asked for, and how columns become rows."""
