"""What it costs to read a row, of recrawl's own files and of those of other crawlers."""
