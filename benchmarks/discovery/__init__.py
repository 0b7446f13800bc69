"""What `recrawl discover` costs, and what failures cost it."""
