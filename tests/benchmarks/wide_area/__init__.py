"""How much of a wide-area link a copy uses."""
